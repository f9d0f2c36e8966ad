"""Reads the server's counters: commands, requests, connections, memory. Its own requests are subtracted."""

from __future__ import annotations

from typing import NamedTuple

from .adapters.raw import connect, pack


class Counters(NamedTuple):
    commands: int  # including those that scripts call
    requests: int  # reads from connections: one per request, unless requests are pipelined
    scripts: int  # calls of EVALSHA and EVAL
    expiries: int  # calls of PEXPIRE and EXPIRE
    clients: int
    memory: int

    def since(self, before: Counters) -> Counters:
        """The difference, without the request that read `before`."""
        return Counters(
            self.commands - before.commands - 1,
            self.requests - before.requests - 1,
            self.scripts - before.scripts,
            self.expiries - before.expiries,
            self.clients,
            self.memory - before.memory,
        )


class Probe:
    """Has a connection of its own, which it doesn't count."""

    def __init__(self, url: str) -> None:
        with connect(url) as connection:
            self._stream = connection.makefile("rwb")  # keeps the connection open

    def counters(self) -> Counters:
        fields = self._info()
        calls = {
            name.removeprefix("cmdstat_"): int(value.partition("calls=")[2].partition(",")[0])
            for name, value in fields.items()
            if name.startswith("cmdstat_")
        }
        return Counters(
            commands=int(fields["total_commands_processed"]),
            requests=int(fields["total_reads_processed"]),
            scripts=calls.get("evalsha", 0) + calls.get("eval", 0),
            expiries=calls.get("pexpire", 0) + calls.get("expire", 0),
            clients=int(fields["connected_clients"]) - 1,
            memory=int(fields["used_memory"]),
        )

    def cpu(self) -> float:
        """CPU seconds of the server since its start."""
        fields = self._info(b"cpu")
        return float(fields["used_cpu_user"]) + float(fields["used_cpu_sys"])

    def ask(self, *words: bytes) -> bytes:
        """Send a command. Return its reply, a line or a bulk string."""
        self._stream.write(pack(*words))
        self._stream.flush()
        line = self._stream.readline()
        if line.startswith(b"-"):
            raise RuntimeError(line.decode())
        return self._stream.read(int(line[1:]) + 2)[:-2] if line.startswith(b"$") else line[1:-2]

    def _info(self, section: bytes = b"everything") -> dict[str, str]:
        pairs = (line.partition(":") for line in self.ask(b"INFO", section).decode().splitlines())
        return {name: value for name, _, value in pairs}
