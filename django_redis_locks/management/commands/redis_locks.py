"""``manage.py redis_locks``: see who holds which locks, and free them. The work is in ``console``."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from ...conf import InvalidLockBackend
from ...console.arguments import VERBS, add
from ...console.console import DOWN, NO, WRONG, Console, UsageError, told
from ...core.errors import LockBackendError, LockKeyError
from ...core.text import distinct

INTERRUPTED = 130


class Command(BaseCommand):
    """Exit codes: 0, the answer; 1, the answer is no; 2, it can't be asked so; 3, a store is down."""

    help = "See who holds which locks, and free them."
    requires_system_checks = ()
    """Whatever else is wrong with a project, who looks after its locks isn't held up."""

    def add_arguments(self, parser: Any) -> None:
        add(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        console = Console(self.stdout, self.stderr, json=options["json"])
        self.stderr.style_func = None
        try:
            code = VERBS[options["verb"]](console, options)
            self.stdout.flush()
        except BrokenPipeError:
            _hang_up()
            return
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except (UsageError, LockKeyError, InvalidLockBackend) as error:
            raise CommandError(distinct(str(error)), returncode=WRONG) from error
        except LockBackendError as error:
            raise CommandError(distinct(str(error.args[0])), returncode=DOWN) from error
        if code == DOWN:
            raise CommandError(told(console.down), returncode=DOWN)
        if code == NO:
            sys.exit(NO)


def _hang_up() -> None:
    """Whoever reads our output has had enough of it, as ``head`` has. Python would say so once more when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
