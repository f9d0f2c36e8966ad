"""Django's settings of workers that refresh cached functions: what the test's own are, from the environment."""

from __future__ import annotations

import json
import os

from tests.settings import *  # noqa: F403

_given = json.loads(os.environ["CELERY_TESTS_LOADS"])
CACHES = _given["caches"]
LOADS_JOURNAL = _given["journal"]
