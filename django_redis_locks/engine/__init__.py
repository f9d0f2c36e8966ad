"""The engine: executes programs on one store, with its threads, timers and wait queues."""
