"""The page cache: ``@cached_page``, and what it shares with the middleware in ``cache/middleware.py``."""
