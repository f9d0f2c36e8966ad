"""``manage.py redis_locks``: lists and releases locks. The package ``console`` implements its subcommands."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from ...conf import InvalidLockBackend
from ...console.arguments import VERBS, add
from ...console.console import DOWN, NO, WRONG, Console, UsageError, errors_text
from ...core.errors import LockBackendError, LockKeyError
from ...core.text import distinct

INTERRUPTED = 130


class Command(BaseCommand):
    """The command. Exit codes: 0 success, 1 nothing found or released, 2 wrong arguments, 3 a store is down."""

    help = "Show which locks are held, and release them."
    requires_system_checks = ()
    """None, so that locks can be shown and released while a system check of the project fails."""

    def add_arguments(self, parser: Any) -> None:
        """Add the subcommands and their arguments."""
        add(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run a subcommand, and exit with its code."""
        console = Console(self.stdout, self.stderr, json=options["json"])
        self.stderr.style_func = None
        try:
            code = VERBS[options["verb"]](console, options)
            self.stdout.flush()
        except BrokenPipeError:
            _discard_output()
            return
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except (UsageError, LockKeyError, InvalidLockBackend) as error:
            raise CommandError(distinct(str(error)), returncode=WRONG) from error
        except LockBackendError as error:
            raise CommandError(distinct(str(error.args[0])), returncode=DOWN) from error
        if code == DOWN:
            raise CommandError(errors_text(console.down), returncode=DOWN)
        if code == NO:
            sys.exit(NO)


def _discard_output() -> None:
    """Redirect further output to /dev/null after the reader, such as ``head``, has closed the pipe. Otherwise Python
    prints an error at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
