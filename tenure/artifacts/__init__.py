"""Artifacts: files and folders, kept by what they hold.

Executors stage what a task has made under its fence; only the coordinator promotes it, and only after acceptance.
"""
