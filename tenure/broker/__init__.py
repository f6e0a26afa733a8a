"""The wire between coordinator, workers and clients: keys, streams, heartbeats, incarnation, embedded server.

Redis is the wire and SQLite is the truth: nothing here decides anything, and all of it may be lost.
"""
