"""Carries programs out on one store: threads, timers and queues."""
