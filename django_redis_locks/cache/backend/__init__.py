"""``StampedeCache``, a backend of ``CACHES``."""
