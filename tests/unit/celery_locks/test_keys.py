"""Keys: equal for equal jobs in every process, and opaque."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest
from celery import Celery
from kombu.utils import json

from celery_locks import SingletonTask
from celery_locks.keys import key_of
from django_redis_locks import LockKeyError

app = Celery("keys", broker="memory://", set_as_current=False)


def task(function, **options):
    return app.task(function, base=SingletonTask, shared=False, name=f"t{uuid.uuid4().hex}", **options)


def key(of, *args, idempotency_key=None, **kwargs) -> str:
    return key_of(of, args, kwargs, idempotency_key)[0]


def of_tenant(tenant, when=1): ...


def bound_tenant(self, tenant): ...


@task
def pay(order, amount=10, *more, currency="EUR", **about): ...


def test_key_is_equal_for_all_spellings_of_a_call() -> None:
    """[C42] Positional or by name, with or without defaults, in any order, tuple or list."""
    calls = (((7,), {}), ((), {"order": 7}), ((7, 10), {}), ((7,), {"amount": 10}), ((), {"amount": 10, "order": 7}))
    assert len({key(pay, *args, **kwargs) for args, kwargs in (*calls, ((7,), {"currency": "EUR"}))}) == 1
    assert key(pay, (1, (2, 3))) == key(pay, [1, [2, 3]])
    assert key(pay, 7, x=1, y={"a": 1, "b": 2}) == key(pay, 7, y={"b": 2, "a": 1}, x=1)


def test_key_of_dict_keys_that_are_no_strings_is_that_of_their_json() -> None:
    """[K9] Mixed types can't be sorted, and numbers have another order as the strings of the received message."""
    for names in ({1: "a", "b": 2}, {9: 1, 10: 2}, {None: 1, True: 2, "x": 3}):
        assert key(pay, names) == key(pay, json.loads(json.dumps(names)))
        assert key(pay, names) == key(pay, dict(reversed(names.items())))


def test_key_of_a_uuid_is_that_of_its_text() -> None:
    """[K10] A view gets a string from the path, a model a UUID from the database."""
    order = uuid.UUID(int=7)
    assert key(pay, order, more={"nested": [order]}) == key(pay, str(order), more={"nested": [str(order)]})
    assert key_of(pay, (order,), {}, "k") == key_of(pay, (str(order),), {}, "k")


def test_key_of_another_call_differs() -> None:
    keys = [*(key(pay, order) for order in (7, 8, "7", None, True, [7])), key(task(of_tenant), 7)]
    keys += [key(pay, 7, 11), key(pay, 7, 10, 1), key(pay, 7, currency="USD"), key(pay, 7, x=1)]
    assert len(set(keys)) == len(keys)


VALUES = [
    datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    datetime(2026, 1, 2, 3, 4, 5),  # noqa: DTZ001
    date(2026, 1, 2),
    time(3, 4),
    Decimal("1.50"),
    uuid.UUID(int=7),
    {"nested": [Decimal(1), uuid.UUID(int=8)]},
    "ümläut \N{GRINNING FACE}",
    "\ud800",
    b"bytes",
]


def test_key_computed_from_the_received_message_is_the_same() -> None:
    """[C43] [C49] A message from ``send_task`` has no header: the worker computes the key from the received JSON."""
    for value in VALUES:
        received = json.loads(json.dumps([value]))
        assert key(pay, value) == key(pay, *received), value


def test_key_of_arguments_without_json_raises_and_asks_for_lock_key() -> None:
    """[C43] Their text contains a memory address, which differs in every process."""
    with pytest.raises(TypeError, match=r'lock_key="\{order_id\}"'):
        key(pay, object())
    with pytest.raises(TypeError, match="lock_key"):
        key(pay, {1, 2})


def test_key_shows_no_argument() -> None:
    """[C44] [C45] 128 bits of BLAKE2b."""
    secret = key(pay, "4111-1111", currency="hunter2")
    assert "4111" not in secret
    assert "hunter2" not in secret
    assert secret.startswith(f"job:{pay.name}:")
    assert len(secret.rpartition(":")[2]) == 32
    assert "4111" not in key(pay, 7, idempotency_key="4111-1111")


def test_lock_key_as_a_template_takes_arguments_by_name() -> None:
    named = task(of_tenant, lock_key="{tenant}")
    assert key(named, "acme") == key(named, tenant="acme", when=2) == f"job:{named.name}:acme"
    assert key(named, "a:b").endswith(":a%3Ab")
    bound = task(bound_tenant, bind=True, lock_key="{self.queue_of}-{tenant}", queue_of="q")
    assert key(bound, "acme").endswith(":q-acme")
    with pytest.raises(LockKeyError, match="is empty"):
        key(named, None)
    with pytest.raises(TypeError, match="takes no argument 'tennant'"):
        key(task(of_tenant, lock_key="{tennant}"), "acme")


def test_lock_key_as_a_callable_gets_task_and_arguments() -> None:
    made = task(of_tenant, lock_key=lambda task, tenant: tenant.upper())
    assert key(made, "acme") == key(made, tenant="acme") == f"job:{made.name}:ACME"
    for wrong in (None, "", 7):
        with pytest.raises(LockKeyError, match=r"lock_key of task .* must return"):
            key(task(of_tenant, lock_key=lambda task, tenant, wrong=wrong: wrong), "acme")


def test_idempotency_key_replaces_the_arguments_and_keeps_their_fingerprint() -> None:
    first, of_seven = key_of(pay, (7,), {}, "k")
    second, of_eight = key_of(pay, (8,), {}, "k")
    assert first == second != key(pay, 7)
    assert of_seven != of_eight
    assert key_of(pay, (), {"order": 7}, "k")[1] == of_seven
    for wrong in ("", 7, b"k"):
        with pytest.raises(LockKeyError, match="idempotency_key"):
            key(pay, 7, idempotency_key=wrong)


def test_key_of_arguments_that_do_not_fit_raises_TypeError_unless_typing_is_off() -> None:
    with pytest.raises(TypeError, match="missing"):
        key(pay)
    loose = task(of_tenant, typing=False)
    assert key(loose, 1, 2, 3) != key(loose, 1, 2)
