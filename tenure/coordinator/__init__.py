"""The one authority: what may run, who holds it, which result is accepted, and what follows a loss.

A synchronous loop on one thread: receive a batch, decide and commit once, then talk. See ARCHITECTURE.md.
"""
