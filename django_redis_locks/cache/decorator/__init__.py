"""``@cached``."""
