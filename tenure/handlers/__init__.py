"""The user's side of a task: noting defaults, the running task's context, finding a function and checking arguments.

`task`, `options` and `context` load nothing heavy, because users' modules import them; pydantic comes with `arguments`.
"""
