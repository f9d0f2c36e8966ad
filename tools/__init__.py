"""Helpers for working on this project. Nothing in here is shipped."""
