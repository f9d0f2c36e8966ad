"""Values, effects and the two runners: plain Python, no Django, no store."""
