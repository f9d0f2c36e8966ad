"""The scenarios. Each module has a class `Scenario`, which a worker process creates, and its method `measure`."""

from __future__ import annotations
