"""``StampedeCache``, a cache backend that wraps another cache."""
