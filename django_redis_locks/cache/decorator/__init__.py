"""``@cached``, a decorator that caches the results of a function."""
