"""What several kinds of locks share; none of it is a kind."""
