"""The implementation of ``manage.py redis_locks``: one function for each subcommand, here called a verb.

The function takes a ``Console`` and the parsed arguments, reads locks through ``inspection`` and ``diagnosis``, and
returns an exit code.
"""
