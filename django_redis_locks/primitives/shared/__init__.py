"""Modules that several primitives share: programs, commands, retries, waiting, and values."""
