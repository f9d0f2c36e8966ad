"""The first acquire and release of a process import nothing. A signal handler that raises during an import, such as that of
Ctrl-C or of Celery's soft time limit, may leave the module locked: then each thread that imports it hangs."""

from __future__ import annotations

import subprocess
import sys

from tools.public_api import ROOT

PROGRAM = """
import builtins, sys
from django.conf import settings

settings.configure(REDIS_LOCKS={"default": {"LOCATION": sys.argv[1]}})

import django

django.setup()

from django_redis_locks import locks

write, lock = locks.rwlock("a").write, locks.lock("b")
original, imported = builtins.__import__, set()

def record(name, *args, **kwargs):
    imported.add(name)
    return original(name, *args, **kwargs)

builtins.__import__ = record
with write, lock:
    pass
print(*imported - {"_io"})  # a module in C
"""


def test_first_acquire_and_release_import_nothing(redis_url: str) -> None:
    command = [sys.executable, "-c", PROGRAM, redis_url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == []
