"""The libraries that are measured. To add one, write a class in a module here and a line below."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple


class Peer(NamedTuple):
    label: str
    path: str  # module:Class in this folder; only workers import it
    distribution: str = ""  # the package to print the version of
    venv: str = "main"
    store: str = "server"  # where its locks are: of `Bench.locations`


ADAPTERS = {
    "raw": Peer("raw socket", "raw:RawSocket"),
    "baton": Peer("BLPOP baton on raw sockets", "raw:Baton"),
    "baton-redis-py": Peer("BLPOP baton with redis-py", "redispy:Baton", "redis"),
    "ours": Peer("django-redis-locks", "ours:Ours", "django-redis-locks"),
    "ours-renewed": Peer("django-redis-locks, renewed", "ours:OursRenewed", "django-redis-locks"),
    "ours-bare": Peer("django-redis-locks, without index and metadata", "ours:OursBare", "django-redis-locks"),
    "ours-fair": Peer("fair_lock", "ours:OursFair", "django-redis-locks"),
    "ours-semaphore": Peer("semaphore, 1 permit", "ours:OursSemaphore", "django-redis-locks"),
    "ours-semaphore-1000": Peer("semaphore, 1 000 permits, 999 held", "ours:OursSemaphoreOf1000", "django-redis-locks"),
    "ours-read": Peer("rwlock, read", "ours:OursRead", "django-redis-locks"),
    "ours-write": Peer("rwlock, write", "ours:OursWrite", "django-redis-locks"),
    "three-reads": Peer("three reads with redis-py, no lock", "redispy:ThreeReads", "redis"),
    "redis-py": Peer("redis-py Lock", "redispy:RedisPy", "redis"),
    "redis-py-pool": Peer("redis-py Lock, pool of 5 000", "redispy:RedisPyBigPool", "redis"),
    "python-redis-lock": Peer("python-redis-lock", "python_redis_lock:PythonRedisLock", "python-redis-lock"),
    "python-redis-lock-pool": Peer(
        "python-redis-lock, pool of 5 000", "python_redis_lock:PythonRedisLockBigPool", "python-redis-lock"
    ),
    "pottery": Peer("pottery", "pottery_redlock:Pottery", "pottery"),
    "django-redis": Peer("django-redis cache.lock", "django_redis_cache:DjangoRedis", "django-redis"),
    "redlock-ng": Peer("redlock-ng", "redlock_ng:RedlockNg", "redlock-ng", "redlock-ng"),
    "ours-replicated": Peer("one server with 2 replicas", "ours:Ours", "django-redis-locks", store="replicated"),
    "ours-sentinel": Peer("the same by its sentinels", "ours:Ours", "django-redis-locks", store="sentinel"),
    "ours-cluster": Peer("Cluster without replicas", "ours:Ours", "django-redis-locks", store="cluster"),
    "ours-redlock": Peer("Redlock of 5", "ours:OursRedlock", "django-redis-locks", store="five"),
    "raw-round": Peer("raw sockets to 5 at once", "raw:RawRound", store="five"),
    "pottery-five": Peer("pottery, 5 masters", "pottery_redlock:Pottery", "pottery", store="five"),
    "redlock-ng-five": Peer("redlock-ng, 5 masters", "redlock_ng:RedlockNg", "redlock-ng", "redlock-ng", "five"),
    "ours-replicated-tasks": Peer(
        "tasks, one server with 2 replicas", "ours:OursTasks", "django-redis-locks", store="replicated"
    ),
    "ours-sentinel-tasks": Peer(
        "tasks, the same by its sentinels", "ours:OursTasks", "django-redis-locks", store="sentinel"
    ),
    "ours-cluster-tasks": Peer(
        "tasks, Cluster without replicas", "ours:OursTasks", "django-redis-locks", store="cluster"
    ),
    "ours-redlock-tasks": Peer("tasks, Redlock of 5", "ours:OursRedlockTasks", "django-redis-locks", store="five"),
    "pottery-five-tasks": Peer("pottery, 5 masters, asyncio", "pottery_redlock:PotteryTasks", "pottery", store="five"),
    "redlock-ng-five-tasks": Peer(
        "redlock-ng, 5 masters, asyncio", "redlock_ng:RedlockNgTasks", "redlock-ng", "redlock-ng", "five"
    ),
    "raw-renewed": Peer("raw, pipelined every 100 ms", "renewers:RawRenewed"),
    "one-by-one": Peer("redis-py, one renewal thread", "renewers:RedisPyOneByOne", "redis"),
    "raw-tasks": Peer("raw, one multiplexed connection", "multiplexed:Multiplexed"),
    "ours-tasks": Peer("django-redis-locks, tasks", "ours:OursTasks", "django-redis-locks"),
    "redis-py-tasks": Peer("redis-py asyncio Lock", "redispy:RedisPyTasks", "redis"),
    "redis-py-tasks-pool": Peer("redis-py asyncio Lock, pool of 5 000", "redispy:RedisPyTasksBigPool", "redis"),
    "pottery-tasks": Peer("pottery, asyncio", "pottery_redlock:PotteryTasks", "pottery"),
    "redlock-ng-tasks": Peer("redlock-ng, asyncio", "redlock_ng:RedlockNgTasks", "redlock-ng", "redlock-ng"),
    "cashews-tasks": Peer("cashews", "cashews_lock:CashewsTasks", "cashews"),
    "celery": Peer("plain Celery", "celery_tasks:Plain", "celery"),
    "celery-guarded": Peer("plain Celery after a raw SET NX", "celery_tasks:Guarded"),
    "ours-celery": Peer("celery_locks, IdempotentTask", "celery_tasks:Ours", "django-redis-locks"),
    "celery-singleton": Peer("celery-singleton", "celery_tasks:CelerySingleton", "celery-singleton"),
    "celery-once": Peer("celery-once", "celery_tasks:CeleryOnce", "celery-once"),
    "ours-load": Peer("get_or_load", "ours_cache:Ours", "django-redis-locks"),
    "ours-tasks-load": Peer("aget_or_load, tasks", "ours_cache:OursTasks", "django-redis-locks"),
    "ours-guarded-load": Peer("StampedeCache.get_or_set", "ours_cache:Guarded", "django-redis-locks"),
    "cashews-load": Peer("cashews, lock=True", "cashews_cache:Cashews", "cashews"),
    "dogpile-distributed": Peer("dogpile.cache, distributed lock", "dogpile_cache:Distributed", "dogpile.cache"),
    "dogpile-local": Peer("dogpile.cache, local lock", "dogpile_cache:Local", "dogpile.cache"),
    "python-redis-lock-load": Peer("python-redis-lock's Django cache", "caches:PythonRedisLock", "python-redis-lock"),
    "django-load": Peer("Django RedisCache.get_or_set", "caches:Django", "Django"),
    "django-redis-load": Peer("django-redis get_or_set", "caches:DjangoRedis", "django-redis"),
    "locmem-load": Peer("LocMemCache.get_or_set", "caches:Locmem", "Django"),
    "ours-locmem-load": Peer("get_or_load on LocMemCache", "ours_cache:OursLocmem", "django-redis-locks"),
    "django-get": Peer("Django RedisCache.get", "caches:Django", "Django"),
    "django-redis-get": Peer("django-redis get", "caches:DjangoRedis", "django-redis"),
    "locmem-get": Peer("LocMemCache.get", "caches:Locmem", "Django"),
    "ours-django-get": Peer("get_or_load on Django's RedisCache", "ours_cache:Ours", "django-redis-locks"),
    "ours-django-redis-get": Peer("get_or_load on django-redis", "ours_cache:OursDjangoRedis", "django-redis-locks"),
    "ours-locmem-get": Peer("get_or_load on LocMemCache", "ours_cache:OursLocmem", "django-redis-locks"),
    "ours-guarded-get": Peer("StampedeCache.get", "ours_cache:Guarded", "django-redis-locks"),
    "ours-guarded-or-set": Peer("StampedeCache.get_or_set", "ours_cache:GuardedOrSet", "django-redis-locks"),
}


def load(name: str) -> Any:
    """Import the adapter's module, and its library with it. Return the class."""
    module, _, attribute = ADAPTERS[name].path.partition(":")
    return getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
