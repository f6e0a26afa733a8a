"""The command line: one file per noun. It builds objects, passes them in, and says in words what they answer.

Everything heavy is imported inside the commands, so that `tenure --help` and shell completion stay quick.
"""
