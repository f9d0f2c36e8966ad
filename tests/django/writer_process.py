"""A process that holds a lock, stops itself before it writes, and writes when it is woken.

Its terms come as JSON; what came of the write is printed.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import django
from django.conf import settings


def main() -> None:
    terms = json.loads(sys.argv[1])
    if terms["DATABASES"]["default"]["ENGINE"].endswith("mysql"):
        import pymysql

        pymysql.install_as_MySQLdb()
    settings.configure(USE_TZ=True, DATABASES=terms["DATABASES"], REDIS_LOCKS=terms["REDIS_LOCKS"])
    django.setup()

    from django_redis_locks import LockError, locks
    from tests.django.account_models import Account, before_update

    Account.objects.get(pk=1)  # connected, so that the lease isn't over before the write begins
    with before_update(lambda: os.kill(os.getpid(), signal.SIGSTOP)):
        grant = locks.lock("account:1", expire=terms["expire"]).acquire()
        account = Account.objects.get(pk=1)
        account.balance -= 90
        if terms["stop"] == "after reading":
            os.kill(os.getpid(), signal.SIGSTOP)
        try:
            account.save(grant=grant)
            outcome = "written"
        except LockError as error:
            outcome = type(error).__name__
    sys.stdout.write(outcome)


if __name__ == "__main__":
    main()
