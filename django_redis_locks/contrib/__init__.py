"""Integrations with other libraries. Each module needs its library; only the project imports it."""
