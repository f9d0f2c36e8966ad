"""Django settings of workers that refresh cached functions: the test's caches, from an environment variable."""

from __future__ import annotations

import json
import os

from tests.settings import *  # noqa: F403

_given = json.loads(os.environ["CELERY_TESTS_LOADS"])
CACHES = _given["caches"]
LOADS_JOURNAL = _given["journal"]
