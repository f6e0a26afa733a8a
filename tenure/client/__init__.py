"""Submitting tasks and waiting for them: `Client`, its handles, and an executor for code that knows futures already."""
