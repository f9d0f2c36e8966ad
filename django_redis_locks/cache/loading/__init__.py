"""The load algorithms: one caller loads a value and stores it; others wait for it, or get the stale value."""
