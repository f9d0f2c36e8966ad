"""Every suite, on every backend, behind both faces: the fixtures ``face``, ``alice`` and ``bob`` bring them in."""

from __future__ import annotations

from tests.contract.suite_bad_input import *  # noqa: F403
from tests.contract.suite_cpython import *  # noqa: F403
from tests.contract.suite_fences import *  # noqa: F403
from tests.contract.suite_jobs import *  # noqa: F403
from tests.contract.suite_lease import *  # noqa: F403
from tests.contract.suite_listing import *  # noqa: F403
from tests.contract.suite_load import *  # noqa: F403
from tests.contract.suite_lock import *  # noqa: F403
from tests.contract.suite_passing import *  # noqa: F403
from tests.contract.suite_record import *  # noqa: F403
from tests.contract.suite_renewed_records import *  # noqa: F403
from tests.contract.suite_rlock import *  # noqa: F403
from tests.contract.suite_tasks import *  # noqa: F403
from tests.contract.suite_void_loads import *  # noqa: F403
