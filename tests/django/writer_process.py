"""A process that holds a lock, stops itself before a write, and writes after SIGCONT.

Its argument is JSON. It prints the outcome of the write.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import django
from django.conf import settings


def main() -> None:
    options = json.loads(sys.argv[1])
    if options["DATABASES"]["default"]["ENGINE"].endswith("mysql"):
        import pymysql

        pymysql.install_as_MySQLdb()
    settings.configure(USE_TZ=True, DATABASES=options["DATABASES"], REDIS_LOCKS=options["REDIS_LOCKS"])
    django.setup()

    from django_redis_locks import LockError, locks
    from tests.django.account_models import Account, before_update

    Account.objects.get(pk=1)  # connects first, so that the lease doesn't end before the write
    with before_update(lambda: os.kill(os.getpid(), signal.SIGSTOP)):
        grant = locks.lock("account:1", expire=options["expire"]).acquire()
        account = Account.objects.get(pk=1)
        account.balance -= 90
        if options["stop"] == "after reading":
            os.kill(os.getpid(), signal.SIGSTOP)
        try:
            account.save(grant=grant)
            outcome = "written"
        except LockError as error:
            outcome = type(error).__name__
    sys.stdout.write(outcome)


if __name__ == "__main__":
    main()
