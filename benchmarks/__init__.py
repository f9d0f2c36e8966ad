"""Ours beside the peers, in one run: `make bench`, or `python -m benchmarks --help`.

adapters/    one library each: how it acquires and releases
scenarios/   what is measured, inside a worker process
rows/        which adapters meet which scenario, in which order: the rows of the table
worker.py    a fresh process that holds one adapter and one scenario
budgets.py   what we ask of ourselves, and whether it is met
"""

from __future__ import annotations
