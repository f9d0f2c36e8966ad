"""Exceptions that Django REST framework turns into responses. ``contrib.drf`` is their public module; this one is
imported only if the framework is installed."""

from __future__ import annotations

from typing import Any

from rest_framework.exceptions import APIException

from .. import answers
from ..core.errors import LockBackendError, LockKeyError, LockNotAcquired


class _AnsweredError(APIException):  # type: ignore[misc] # it has no types
    default_code: str
    wait: int | None
    """The seconds of ``Retry-After``."""

    def __init__(self, failure: LockNotAcquired | LockBackendError | LockKeyError) -> None:
        self.__dict__.update(failure.__dict__)
        self.args = failure.args
        APIException.__init__(self, answers.detail_of(failure), self.default_code)

    def __str__(self) -> str:
        return Exception.__str__(self)  # shown in logs; clients get ``detail``


class Locked(_AnsweredError, LockNotAcquired):
    """``LockNotAcquired`` as a response of the framework: 409, or the lock's ``status=``."""

    default_code = "locked"

    def __init__(self, failure: LockNotAcquired) -> None:
        super().__init__(failure)
        self.status_code = failure.status
        self.wait = failure.retry_header


class LocksUnavailable(_AnsweredError, LockBackendError):
    """``LockBackendError`` as a response of the framework: 503."""

    status_code = 503
    default_code = "locks_unavailable"
    wait = answers.DOWN_RETRY_AFTER


class UnusableRequest(_AnsweredError, LockKeyError):
    """``LockKeyError`` as a response of the framework: 400, or the lock's ``on_key_error=``."""

    default_code = "invalid"
    wait = None

    def __init__(self, error: LockKeyError, status: int) -> None:
        super().__init__(error)
        self.status_code = status


def answered_error(failure: LockNotAcquired | LockBackendError) -> Locked | LocksUnavailable:
    """Return the exception that the framework turns into a response."""
    return Locked(failure) if isinstance(failure, LockNotAcquired) else LocksUnavailable(failure)


def answered_error_in_view(
    failure: LockNotAcquired | LockBackendError, drf_request: Any, view_request: Any
) -> Locked | LocksUnavailable:
    """The exception to raise in a call that serves a request of the framework.

    Args:
        failure: why the call has no lock.
        drf_request: the framework's request.
        view_request: Django's request if the call is the view; None in a helper.
    """
    if view_request is not None:
        headers = getattr((drf_request.parser_context or {}).get("view"), "headers", None)
        if isinstance(headers, dict):
            headers["Cache-Control"] = "no-store"  # the view puts them on its response
        answers.expect_refusal(view_request)
    return answered_error(failure)
