"""Launchers: how the executor of an assignment is started elsewhere, and what became of it there.

Nothing here is the truth: whether a task runs, ran or is over is decided by leases alone. A launcher starts executors,
says what its substrate says of them, and ends them.
"""
