"""What can go wrong, apart from a response's being wrong. The messages are one line."""


class InputError(Exception):
    """The files given do not belong together, or are not what they should be."""


class GraderError(Exception):
    """lighteval's grader does not work here; no response can be blamed."""
