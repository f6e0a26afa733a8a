"""What travels between client, coordinator and worker: frozen, strict values, state tables and timing rules.

Nothing here does I/O. Sizes are checked before anything is parsed, and errors never echo what was received.
"""
