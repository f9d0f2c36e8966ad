"""Values of Django in key templates: rows, users and lazy texts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, Group, User
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext_lazy

from django_redis_locks import LockKeyError
from django_redis_locks.core.key_templates import compile_template, text_of


def lazy(value: Any) -> Any:
    return SimpleLazyObject(lambda: value)


def test_model_instance_is_its_label_and_primary_key() -> None:
    """Never its `__str__`; a lazy one, such as `request.user`, has the same text."""
    user = User(pk=5, username="jane")
    assert text_of(user) == text_of(lazy(user)) == "auth.user.5"
    assert text_of(Group(pk=5)) == "auth.group.5"


def test_unsaved_row_and_anonymous_user_are_empty() -> None:
    """[D22] They have no primary key yet, or none at all."""
    for value in (User(username="jane"), AnonymousUser(), None):
        for user in (value, lazy(value)):
            assert text_of(user) == ""
            with pytest.raises(LockKeyError, match=r"is empty.*Write \{user!n\}") as raised:
                compile_template("{user}", lambda user: None)((user,), {})
            assert "jane" not in str(raised.value)


def test_message_of_an_empty_user_says_what_was_found() -> None:
    """[D22] Whether it is an unsaved row or an anonymous user."""
    for value, what in ((User(), "a User that isn't saved"), (AnonymousUser(), "an anonymous user")):
        with pytest.raises(LockKeyError, match=what):
            compile_template("{user}", lambda user: None)((lazy(value),), {})


def test_lazy_object_is_refused_as_its_value_is() -> None:
    for value in (object(), [1], {"a": 1}, SimpleNamespace()):
        with pytest.raises(LockKeyError):
            text_of(lazy(value))


def test_lazy_translation_is_its_text() -> None:
    assert text_of(gettext_lazy("yes")) == "yes"
