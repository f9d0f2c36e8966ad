"""Newer servers than the installed ones: Redis 8.0 and Valkey 8.1 of Debian trixie, unpacked into `.cache/trixie`.

    REDIS_SERVER=$(python tools/trixie_servers.py redis-server) make test
    python tools/trixie_servers.py valkey-server         prints the path of the other one

Nothing is installed: a wrapper starts each server with the loader and the libraries of that folder. Needs mmdebstrap, a
package of Debian and Ubuntu.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SERVERS = ("redis-server", "valkey-server")
FOLDER = Path(__file__).resolve().parent.parent / ".cache" / "trixie"


def trixie_server(name: str) -> Path:
    """The wrapper that runs this server. The folder is made at the first call."""
    if not FOLDER.exists():
        if shutil.which("mmdebstrap") is None:
            raise SystemExit("Install the package mmdebstrap, which unpacks servers of a newer Debian.")
        FOLDER.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER.parent) as temporary:
            root = Path(temporary, "root")
            _unpack(root)
            for server in SERVERS:
                _write_wrapper(root, server)
            root.rename(FOLDER)  # atomic
    return FOLDER / name


def _unpack(root: Path) -> None:
    command = ["mmdebstrap", "--quiet", "--variant=extract", f"--include={','.join(SERVERS)}", "trixie", str(root)]
    finished = subprocess.run(command, check=False, capture_output=True, text=True)
    if finished.returncode:
        raise SystemExit(f"mmdebstrap can't unpack {' and '.join(SERVERS)}:\n{finished.stderr}")


def _write_wrapper(root: Path, server: str) -> None:
    (libraries,) = root.glob("usr/lib/*-linux-gnu")
    (loader,) = libraries.glob("ld-linux-*.so.*")
    command = f"{loader} --library-path {libraries} {root}/usr/bin/{server}".replace(str(root), str(FOLDER))
    wrapper = root / server
    wrapper.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    wrapper.chmod(0o755)


def main() -> None:
    if sys.argv[1:] not in [[name] for name in SERVERS]:
        raise SystemExit(f"Name one of them: {', '.join(SERVERS)}.")
    print(trixie_server(sys.argv[1]))


if __name__ == "__main__":
    main()
