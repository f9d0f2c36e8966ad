"""What is measured. Each module has a class `Scenario` that lives in a worker process and answers `measure(...)`."""

from __future__ import annotations
