"""Refusals that Django REST framework answers. Imported only where one of its requests is at hand; ``contrib.drf`` is the
public name."""

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
        return Exception.__str__(self)  # for the log; the client reads ``detail``


class Locked(_AnsweredError, LockNotAcquired):
    """``LockNotAcquired`` that the framework answers: 409, or what ``status=`` of the lock says."""

    default_code = "locked"

    def __init__(self, failure: LockNotAcquired) -> None:
        super().__init__(failure)
        self.status_code = failure.status
        self.wait = failure.retry_header


class LocksUnavailable(_AnsweredError, LockBackendError):
    """``LockBackendError`` that the framework answers: 503."""

    status_code = 503
    default_code = "locks_unavailable"
    wait = answers.DOWN_RETRY_AFTER


class UnusableRequest(_AnsweredError, LockKeyError):
    """``LockKeyError`` that the framework answers: 400, or what ``on_key_error=`` of the lock says."""

    default_code = "invalid"
    wait = None

    def __init__(self, error: LockKeyError, status: int) -> None:
        super().__init__(error)
        self.status_code = status


def answered_error(failure: LockNotAcquired | LockBackendError) -> Locked | LocksUnavailable:
    return Locked(failure) if isinstance(failure, LockNotAcquired) else LocksUnavailable(failure)


def answered_error_in_view(
    failure: LockNotAcquired | LockBackendError, drf_request: Any, answered: Any
) -> Locked | LocksUnavailable:
    """The exception to raise where ``drf_request``, a request of the framework's, is served. ``answered`` is Django's own, if
    the call is the view and no helper."""
    if answered is not None:
        headers = getattr((drf_request.parser_context or {}).get("view"), "headers", None)
        if isinstance(headers, dict):
            headers["Cache-Control"] = "no-store"  # the view puts them on its response
        answers.expected(answered)
    return answered_error(failure)
