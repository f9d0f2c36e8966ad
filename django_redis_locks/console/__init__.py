"""What ``manage.py redis_locks`` does: one module for what belongs together, one function for each verb.

A verb is given a ``Console`` and the parsed arguments, and returns an exit code. It knows of locks what ``inspection`` and
``diagnosis`` tell.
"""
