"""How a value is loaded once, stored and refreshed."""
