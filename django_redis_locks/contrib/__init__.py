"""Ties to other libraries. A module here needs its library; nothing else imports it."""
