"""Errors that are meant for the user: one line that names the key or file, the value and what is allowed."""


class UserError(Exception):
    """A mistake in the study, a file or a command line. The command prints its message, without a traceback."""
