"""``@cached_page``."""
