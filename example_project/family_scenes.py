"""The scenes of the family of locks: what each process does, and what was seen of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from multiprocessing.connection import Connection
from typing import Any

import family_report
from family_crew import PATIENCE, Crew
from family_report import Openings, Permits, Reads, Table, Transfers, in_order, last, most_at_once, spans

from django_redis_locks import LockNotAcquired, inspection, locks

PROCESSES = 4
CALLERS = 3 * PROCESSES

READERS = 6
READS = 20
READ_SECONDS = 0.01  # between the two halves of a read
WRITES = 5
WRITE_SECONDS = 0.03  # between the two halves of a write: not those of a read, or the race would hide

LIMIT = 3
VICTIMS = 2
SURVIVORS = 6
JOBS = 3
JOB_SECONDS = 0.1
LEASE = 2.0

IMPORTS = {"a.csv": 0.1, "b.csv": 0.2, "c.csv": 0.3, "d.csv": 0.4, "e.csv": 0.8}  # seconds that they take
TWICE = "a.csv"
WAITERS = 3

MONEY = 1000  # of each account
PAYERS = 6
TRANSFERS = 5
TRANSFER_SECONDS = 0.005
DEADLOCK_WAIT = 0.1  # seconds after which the second one of two nested locks is given up


# 1: first come, first served


def show_arrival(url: str) -> Table:
    served = {}
    for form in ("lock", "fair_lock"):
        with Crew(url) as crew:
            served[form] = line_up(crew, form)
    return family_report.arrival(served, CALLERS, PROCESSES)


def line_up(crew: Crew, form: str) -> list[int]:
    """Let callers ask for a lock that is held, each after the one before is registered. Return them as served."""
    key = f"printer:{form}"
    crew.start(keep, form, key)
    crew.wait_for("kept", 1)
    commands = []
    for _ in range(PROCESSES):
        ours, theirs = crew.context.Pipe()
        crew.start(ask_on_command, form, key, theirs)
        commands.append(ours)
    for caller in range(CALLERS):
        commands[caller % PROCESSES].send(caller)
        crew.wait_for("asks", caller + 1)
        registered = caller + 1 if form == "fair_lock" else min(caller + 1, PROCESSES)  # a lock has a line per process
        crew.wait("a waiter in line", lambda: inspection.find(key).waiting >= registered)  # noqa: B023 - called here
        time.sleep(0.02)
    crew.go.set()
    crew.wait_for("served", CALLERS)
    return in_order(crew.events(), "served")


def keep(crew: Crew, form: str, key: str) -> None:
    with getattr(locks, form)(key):
        crew.note("kept")
        crew.go.wait(PATIENCE)


def ask_on_command(crew: Crew, form: str, key: str, commands: Connection[Any, Any]) -> None:
    def ask(caller: int) -> None:
        crew.note("asks", caller)
        with getattr(locks, form)(key, wait=PATIENCE):
            crew.note("served", caller)

    while True:
        threading.Thread(target=ask, args=(commands.recv(),)).start()


# 2: readers beside readers


def show_readers(url: str) -> Table:
    return family_report.readers([read_and_write(url, form) for form in ("no lock", "lock", "rwlock")], READERS * READS)


def read_and_write(url: str, form: str) -> Reads:
    with Crew(url) as crew:
        crew.client().mset({"price:apple": 0, "price:pear": 0})
        for number in range(READERS):
            crew.start(read, form, number)
        crew.start(write, form)
        crew.wait_for("ready", READERS + 1)
        begin = time.monotonic()
        crew.go.set()
        crew.join()
        events = crew.events()
        reading = spans(events, "began", "ended")
        return Reads(form, len(reading), crew.count("torn"), most_at_once(reading), last(events, "ended") - begin)


def side(form: str, name: str) -> Any:
    if form == "no lock":
        return nullcontext()
    return locks.lock("prices") if form == "lock" else getattr(locks.rwlock("catalogue"), name)


def read(crew: Crew, form: str, number: int) -> None:
    client = crew.client()
    crew.note("ready")
    crew.go.wait(PATIENCE)
    for _ in range(READS):
        with side(form, "read"):
            crew.note("began", number)
            apple = client.get("price:apple")
            time.sleep(READ_SECONDS)
            pear = client.get("price:pear")
            crew.note("ended", number)
        if apple != pear:
            crew.note("torn", number)


def write(crew: Crew, form: str) -> None:
    client = crew.client()
    crew.note("ready")
    crew.go.wait(PATIENCE)
    for price in range(1, WRITES + 1):
        with side(form, "write"):
            client.set("price:apple", price)
            time.sleep(WRITE_SECONDS)
            client.set("price:pear", price)
        time.sleep(WRITE_SECONDS)


# 3: permits back after a kill


def show_permits(url: str) -> Table:
    outcomes = [take_permits(url, form) for form in ("list of tokens", "semaphore")]
    return family_report.permits(outcomes, LIMIT, VICTIMS, SURVIVORS * JOBS, LEASE)


def take_permits(url: str, form: str) -> Permits:
    with Crew(url) as crew:
        client = crew.client()
        if form == "list of tokens":
            client.rpush("tokens", *range(LIMIT))
        victims = [crew.start(work, form, number, 1, PATIENCE) for number in range(VICTIMS)]
        for number in range(VICTIMS, VICTIMS + SURVIVORS):
            crew.start(work, form, number, JOBS, JOB_SECONDS)
        crew.go.set()
        crew.wait("the victims' jobs", lambda: {0, 1} <= {one.of for one in crew.events() if one.what == "began"})
        for victim in victims:
            crew.kill(victim)
        killed = dict(enumerate(crew.kills.values()))
        back_after = None
        if form == "semaphore":
            dead = set(crew.kills)
            crew.wait("the permits", lambda: not dead & {holder.pid for holder in jobs().holders()})
            back_after = time.monotonic() - max(killed.values())
        crew.join()
        done = spans(crew.events(), "began", "ended")
        left = client.llen("tokens") if form == "list of tokens" else jobs().available()
        at_once = most_at_once(spans(crew.events(), "began", "ended", killed))
        return Permits(form, len(done), at_once, left, back_after)


def jobs() -> Any:
    return locks.semaphore("jobs", limit=LIMIT, wait=PATIENCE, expire=LEASE, renew=True)


def work(crew: Crew, form: str, number: int, times: int, seconds: float) -> None:
    client = crew.client()
    crew.go.wait(PATIENCE)
    for _ in range(times):
        if form == "semaphore":
            with jobs():
                do_job(crew, number, seconds)
        else:
            _, token = client.blpop("tokens")
            do_job(crew, number, seconds)
            client.rpush("tokens", token)


def do_job(crew: Crew, number: int, seconds: float) -> None:
    crew.note("began", number)
    time.sleep(seconds)
    crew.note("ended", number)


# 4: a latch


def show_latch(url: str) -> Table:
    return family_report.latch([import_files(url, form) for form in ("counter", "latch")], len(IMPORTS), WAITERS)


def import_files(url: str, form: str) -> Openings:
    with Crew(url) as crew:
        if form == "counter":
            crew.client().set("files", len(IMPORTS))
        else:
            locks.latch("import").try_set(len(IMPORTS))
        for number in range(WAITERS):
            crew.start(wait_until_open, form, number)
        crew.wait_for("waits", WAITERS)
        for number, file in enumerate([*IMPORTS, TWICE]):
            crew.start(import_file, form, number % len(IMPORTS), file)
        crew.wait_for("ready", len(IMPORTS) + 1)
        crew.go.set()
        crew.join()
        events = crew.events()
        imported = [event for event in events if event.what == "imported"]
        opened = [event.at for event in events if event.what == "opened"]
        missing = [len(IMPORTS) - len({one.of for one in imported if one.at <= at}) for at in opened]
        end = max(min(one.at for one in imported if one.of == number) for number in range(len(IMPORTS)))
        return Openings(form, crew.count("counts"), missing, [at - end for at in opened])


def import_file(crew: Crew, form: str, number: int, file: str) -> None:
    client = crew.client()
    crew.note("ready")
    crew.go.wait(PATIENCE)
    time.sleep(IMPORTS[file])
    crew.note("imported", number)
    crew.note("counts", number)
    if form == "counter":
        client.decr("files")
    else:
        locks.latch("import").count_down(file)


def wait_until_open(crew: Crew, form: str, number: int) -> None:
    client = crew.client()
    crew.note("waits")
    if form == "latch":
        if not locks.latch("import").wait(timeout=PATIENCE):
            return
    else:
        while int(client.get("files")) > 0:
            time.sleep(0.01)
    crew.note("opened", number)


# 5: no deadlock


def show_transfers(url: str) -> Table:
    outcomes = [transfer_money(url, form) for form in ("two locks", "multi_lock")]
    return family_report.transfers(outcomes, 2 * MONEY, PAYERS * TRANSFERS)


def transfer_money(url: str, form: str) -> Transfers:
    with Crew(url) as crew:
        client = crew.client()
        client.mset({"money:1": MONEY, "money:2": MONEY})
        for number in range(PAYERS):
            crew.start(pay, form, number)
        crew.wait_for("ready", PAYERS)
        begin = time.monotonic()
        crew.go.set()
        crew.join()
        total = sum(map(int, client.mget("money:1", "money:2")))
        return Transfers(form, crew.count("paid"), crew.count("gave-up"), total, time.monotonic() - begin)


def pay(crew: Crew, form: str, number: int) -> None:
    client = crew.client()
    crew.note("ready")
    crew.go.wait(PATIENCE)
    payer, payee = (1, 2) if number % 2 else (2, 1)
    for _ in range(TRANSFERS):
        try:
            if form == "multi_lock":
                with locks.multi_lock(f"account:{payer}", f"account:{payee}", wait=PATIENCE):
                    transfer(client, payer, payee)
            else:
                with locks.lock(f"account:{payer}", wait=PATIENCE):
                    time.sleep(TRANSFER_SECONDS)
                    with locks.lock(f"account:{payee}", wait=DEADLOCK_WAIT):
                        transfer(client, payer, payee)
        except LockNotAcquired:
            crew.note("gave-up", number)
        else:
            crew.note("paid", number)


def transfer(client: Any, payer: int, payee: int) -> None:
    """Read, then write: without both locks money would be lost, or made."""
    has, gets = (int(client.get(f"money:{account}")) for account in (payer, payee))
    time.sleep(TRANSFER_SECONDS)
    client.mset({f"money:{payer}": has - 1, f"money:{payee}": gets + 1})


SCENES: list[Callable[[str], Table]] = [show_arrival, show_readers, show_permits, show_latch, show_transfers]
