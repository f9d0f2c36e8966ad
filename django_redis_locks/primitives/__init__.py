"""One kind of lock per file. Programs only: no store, no clock, no threads, no event loop."""
