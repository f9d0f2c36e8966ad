"""The primitives: lock, record and load, one per file, written as programs without I/O, threads or event loops."""
