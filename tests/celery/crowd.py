"""A process of many threads that submit one job at once: `python -m tests.celery.crowd <who> <task> <threads>`."""

from __future__ import annotations

import json
import os
import sys
import threading

from tests.celery.app import make_app


def main(who: str, name: str, threads: int) -> None:
    app = make_app(json.loads(os.environ["CELERY_TESTS"]))
    task = app.tasks[name]
    start = threading.Barrier(threads)
    ids: list[str] = []
    duplicates: list[bool] = []

    def submit() -> None:
        start.wait()
        result = task.apply_async((who, 1), queue=f"nobody-{who}")
        ids.append(result.id)
        duplicates.append(result.deduplicated)

    with app.connection_for_write():
        app.journal.write("ready", who)
        app.journal.pass_gate(who)
    crowd = [threading.Thread(target=submit) for _ in range(threads)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    app.journal.write("submitted", who, ids=sorted(set(ids)), count=len(ids), duplicates=sum(duplicates))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
