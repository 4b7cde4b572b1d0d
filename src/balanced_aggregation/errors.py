"""Errors that are meant for the user: one line that names the key or file, the value and what is allowed."""

from errno import ENOSPC


class UserError(Exception):
    """A mistake in the study, a file or a command line. The command prints its message, without a traceback."""


class GoldError(ValueError):
    """A gold answer that cannot be read: no response could be judged by it."""


class InfrastructureError(RuntimeError):
    """The machinery failed, not what it was asked to judge: never a reward of 0, always the end of the run."""


class DiskFull(OSError):
    """A file could not be written because there is no space left for it; the message names it and the space."""

    errno = ENOSPC


class Interrupted(Exception):
    """Somebody asked the program to end before it was done; it has stored how far it is, and the next one goes on."""

    exit_code = 75
    """Of the process: `EX_TEMPFAIL`, try again."""

    def __init__(self, message: str, signal: str):
        """Args: one line for the person, and the name of the signal that asked."""
        super().__init__(message)
        self.signal = signal
