"""Measurements of a whole fleet on this machine. `make bench`, or `python -m bench --help`."""
