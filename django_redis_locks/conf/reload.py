"""Calls hooks when settings change while the process runs, as with ``override_settings`` in tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from django.core.signals import setting_changed

from .schema import SETTING

if TYPE_CHECKING:
    from collections.abc import Callable

Hook = TypeVar("Hook", bound="Callable[[], object]")


def on_settings_change(hook: Hook) -> Hook:
    """Call ``hook`` after each change of ``REDIS_LOCKS`` or ``CACHES``, to forget what was read from them. A
    decorator."""

    def run(*, setting: str, **_: object) -> None:
        if setting in (SETTING, "CACHES"):
            hook()

    setting_changed.connect(run, weak=False)
    return hook
