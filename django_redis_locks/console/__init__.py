"""The implementation of ``manage.py redis_locks``: one function for each verb.

A verb takes a ``Console`` and the parsed arguments, and returns an exit code. It reads locks by ``inspection`` and
``diagnosis``.
"""
