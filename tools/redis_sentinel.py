"""A master, two replicas and three sentinels for the tests.

    with SentinelGroup() as group:
        locks.configure(group.location())
        group.kill_master()

They are up after about two seconds, and end by pid with the group.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Self

from .processes import HOST, ServerFailed
from .redis_server import Config, RedisServer, ReplyError

SERVICE = "mymaster"
PATIENCE = 30.0


class SentinelGroup:
    """Servers and the sentinels that watch them. `config` is for the servers, `down_after` in milliseconds."""

    def __init__(
        self, config: Config | None = None, *, replicas: int = 2, sentinels: int = 3, down_after: int = 500
    ) -> None:
        self.service = SERVICE
        self._config = {"repl-diskless-sync-delay": 0, **(config or {})}
        self._replicas = replicas
        self._sentinels = sentinels
        self._down_after = down_after
        self.servers: list[RedisServer] = []
        self.sentinels: list[RedisServer] = []

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def stop(self) -> None:
        for server in (*self.sentinels, *self.servers):
            server.stop()

    def _start(self) -> None:
        master = RedisServer(self._config).start()
        self.servers.append(master)
        for _ in range(self._replicas):
            self.servers.append(RedisServer({**self._config, "replicaof": f"{HOST} {master.port}"}).start())
        password = self._config.get("requirepass")
        lines = [
            f"monitor {SERVICE} {HOST} {master.port} {self._sentinels // 2 + 1}",
            f"down-after-milliseconds {SERVICE} {self._down_after}",
            f"failover-timeout {SERVICE} 2000",  # sentinels that split their votes try again after twice that
            f"parallel-syncs {SERVICE} 2",
            *([f"auth-pass {SERVICE} {password}"] if password else []),
        ]
        for _ in range(self._sentinels):
            self.sentinels.append(RedisServer({"sentinel": lines}, arguments=["--sentinel"]).start())
        self.wait_until_whole()

    def location(self, database: int = 0) -> str:
        """The LOCATION of the locks."""
        password = self._config.get("requirepass")
        login = f":{password}@" if password else ""
        hosts = ",".join(f"{HOST}:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{login}{hosts}/{SERVICE}/{database}"

    @property
    def master(self) -> RedisServer:
        """The server that the first running sentinel names."""
        sentinel = next(sentinel for sentinel in self.sentinels if sentinel.running)
        port = int(sentinel.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1])
        return next(server for server in self.servers if server.port == port)

    @property
    def replicas(self) -> list[RedisServer]:
        master = self.master
        return [server for server in self.servers if server is not master]

    def fail_over(self) -> None:
        """Let the sentinels promote a replica while the master is well. Returns at once."""
        self.sentinels[0].command("SENTINEL", "FAILOVER", SERVICE)

    def wait_for_master_other_than(self, former: RedisServer) -> RedisServer:
        """Wait until all running sentinels name another master, and return it."""
        _eventually(lambda: self._masters().isdisjoint({former.port}) and len(self._masters()) == 1)
        return self.master

    def wait_until_whole(self) -> None:
        """Wait until all servers run, all sentinels agree on the master, and all replicas follow it."""
        _eventually(self._is_whole)

    def _masters(self) -> set[int]:
        return {
            int(sentinel.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1])
            for sentinel in self.sentinels
            if sentinel.running
        }

    def _is_whole(self) -> bool:
        if len(self._masters()) != 1:
            return False
        for sentinel in self.sentinels:
            words = sentinel.command("SENTINEL", "MASTER", SERVICE)
            fields = dict(zip(words[::2], words[1::2], strict=True))
            if (
                fields["num-slaves"] != str(self._replicas)
                or fields["num-other-sentinels"] != str(self._sentinels - 1)
                or fields["flags"] != "master"
            ):
                return False
        lines = self.master.command("INFO", "replication").splitlines()
        return "role:master" in lines and sum("state=online" in line for line in lines) == self._replicas


def _eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(OSError, ReplyError, StopIteration):  # a server that starts or ends
            if condition():
                return
        if time.monotonic() > deadline:
            raise ServerFailed("The servers and sentinels don't agree in time.")
        time.sleep(0.02)
