"""Submits one job from many threads at once.

python -m tests.celery.concurrent_submitter <tag> <task> <number of threads>
"""

from __future__ import annotations

import json
import os
import sys
import threading

from tests.celery.app import make_app


def main(tag: str, name: str, count: int) -> None:
    app = make_app(json.loads(os.environ["CELERY_TESTS"]))
    task = app.tasks[name]
    start = threading.Barrier(count)
    ids: list[str] = []
    duplicates: list[bool] = []

    def submit() -> None:
        start.wait()
        result = task.apply_async((tag, 1), queue=f"unconsumed-{tag}")
        ids.append(result.id)
        duplicates.append(result.deduplicated)

    with app.connection_for_write():
        app.journal.write("ready", tag)
        app.journal.pass_gate(tag)
    threads = [threading.Thread(target=submit) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    app.journal.write("submitted", tag, ids=sorted(set(ids)), count=len(ids), duplicates=sum(duplicates))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
