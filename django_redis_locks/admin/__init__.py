"""The page of held locks in Django's admin: ``/admin/django_redis_locks/heldlock/``.

It is registered on the default site. For another site: ``my_site.register(HeldLock, HeldLockAdmin)``.
"""

from __future__ import annotations

from django.contrib import admin

from ..models import HeldLock
from .held_locks import HeldLockAdmin

__all__ = ["HeldLockAdmin"]

admin.site.register(HeldLock, HeldLockAdmin)
