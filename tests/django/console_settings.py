"""Django settings of commands in processes of their own. An environment variable contains REDIS_LOCKS."""

from __future__ import annotations

import json
import os

from tests.settings import *  # noqa: F403

REDIS_LOCKS = json.loads(os.environ["TEST_REDIS_LOCKS"])
