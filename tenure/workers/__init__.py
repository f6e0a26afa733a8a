"""The worker: an agent that talks to the broker, runners that own process trees, and children that run handlers.

`tenure.workers.agent.Agent` is the way in. Importing the package starts nothing and loads nothing heavy: the runner
and the child are processes of their own and want to start fast.
"""
