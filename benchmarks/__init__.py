"""Benchmarks of this library and of others, in one run: `make bench`, or `python -m benchmarks --help`.

adapters/    one library each: how it acquires and releases
scenarios/   what is measured, inside a worker process
rows/        which adapters run which scenario: the numbered sections of the tables
worker.py    the process that runs one adapter in one scenario
budgets.py   limits for the figures of this library, and whether they are met
"""

from __future__ import annotations
