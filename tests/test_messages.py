"""Every message is translated, and the compiled translations equal the sources."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.utils import translation

from django_redis_locks.models import HeldLock
from tools import messages
from tools.messages import Message


def test_messages_are_all_translated() -> None:
    """A new message needs `make messages` and a translation."""
    assert {language: list(messages.problems(language)) for language in messages.LANGUAGES} == {"en": [], "zh_Hans": []}


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the project that a test may change; returns the Chinese .po file."""
    shutil.copytree(messages.PACKAGE, tmp_path / "django_redis_locks", ignore=shutil.ignore_patterns("__pycache__"))
    for name, place in (("ROOT", ""), ("PACKAGE", "django_redis_locks"), ("LOCALE", "django_redis_locks/locale")):
        monkeypatch.setattr(messages, name, tmp_path / place)
    assert list(messages.problems("zh_Hans")) == []
    return messages.place("zh_Hans")


def spoil(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_wrong_translation_is_a_problem(copy: Path) -> None:
    """The check reports each kind of wrong translation."""
    right = copy.read_text(encoding="utf-8")
    for old, new, problem in (
        ('msgstr "返回"', 'msgstr ""', "'Back' isn't translated"),
        ('msgid "Back"', 'msgid "Backwards"', "isn't what the sources say"),
        ('msgstr "返回"', 'msgstr "回"', "django.mo isn't made of django.po"),
        ("%(time)s前到期", "%(zeit)s前到期", "has other placeholders"),
        ('#: django_redis_locks/apps.py\nmsgid "Redis locks"', '#, fuzzy\nmsgid "Redis locks"', "isn't translated"),
    ):
        copy.write_text(right, encoding="utf-8")
        spoil(copy, old, new)
        assert any(problem in found for found in messages.problems("zh_Hans")), problem


def test_new_message_is_a_problem(copy: Path) -> None:
    """A message that is missing in the .po file is reported, from Python and from templates."""
    for file, text in (
        ("apps.py", '_("Something new")\n'),
        ("templates/admin/django_redis_locks/heldlock/problem.html", '{% translate "Something new" %}'),
    ):
        source = messages.PACKAGE / file
        right = source.read_text(encoding="utf-8")
        source.write_text(right + text, encoding="utf-8")
        assert any("sources" in found for found in messages.problems("zh_Hans")), file
        source.write_text(right, encoding="utf-8")


def test_removed_message_that_returns_keeps_its_translation(copy: Path) -> None:
    """Two branches may add and remove messages; a message isn't translated twice."""
    file = messages.PACKAGE / "apps.py"
    spoil(file, '_("Redis locks")', '"Redis locks"')
    for present in (False, True):
        if present:
            spoil(file, '"Redis locks"', '_("Redis locks")')
        messages.update("zh_Hans").save(str(copy))
        (entry,) = (entry for entry in messages.read(copy) if entry.msgid == "Redis locks")
        assert entry.msgstr == "Redis 锁"
        assert bool(entry.obsolete) is not present


def test_messages_are_found_in_python_and_templates() -> None:
    python = """
_("a"), gettext_lazy('b'), ngettext("c", "d", n), pgettext_lazy("e", "f"), other("g"), npgettext("h", "i", "j", n)
_("k" "l")
"""
    template = """{% load i18n %}{% translate "it's" %}{% translate 'say "b"' context "c" %}{% trans "d" as e %}
{% blocktranslate with x=y %}f {{ x }}{% endblocktranslate %}
{% blocktranslate count n=m trimmed %} one {% plural %} {{ n }} of them {% endblocktranslate %}{# translate "no" #}"""
    found = [Message("a"), Message("b"), Message("c", "d"), Message("f", context="e"), Message("i", "j", "h")]
    assert sorted(messages.in_python(python)) == sorted([*found, Message("kl")])
    assert list(messages.in_template(template)) == [
        Message("it's"),
        Message('say "b"', context="c"),
        Message("d"),
        Message("f %(x)s"),
        Message("one", "%(n)s of them"),
    ]


def test_only_literals_can_be_translated() -> None:
    with pytest.raises(ValueError, match="only literals"):
        list(messages.in_python('_(f"{name} is held")'))


def test_translated_messages_are_shown_in_the_active_language(settings: Any) -> None:
    """Also if the site's default language is another one."""
    settings.LANGUAGE_CODE = "de"
    for language, expected in (
        ("zh-hans", ["Redis 锁", "键", "空闲", "2 个进程"]),
        ("en", ["Redis locks", "key", "free", "2 processes"]),
    ):
        with translation.override(language):
            shown = [
                apps.get_app_config("django_redis_locks").verbose_name,
                HeldLock._meta.get_field("key").verbose_name,
                translation.pgettext("lock", "free"),
                translation.ngettext("%(count)d process", "%(count)d processes", 2) % {"count": 2},
            ]
            assert [str(text) for text in shown] == expected
