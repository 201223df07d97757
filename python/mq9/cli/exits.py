"""The exit codes of commands, which scripts can rely on."""

OK = 0
REFUSED = 1
"""The broker refused the request, or `doctor` found damage, now or earlier."""
USAGE = 2
"""The command line is wrong."""
UNREACHABLE = 3
"""No broker there, or it does not let this user in; for `doctor`, the directory is in use."""
TIMEOUT = 4
"""The broker did not answer in time: the request may have been carried out."""
NOTHING = 5
"""All went well, and there was nothing to show."""
STOPPED = 130
"""Interrupted with Ctrl-C."""


class Failure(Exception):  # noqa: N818
    """A command that ends early; the text says what happened, why, and what to do."""

    def __init__(self, text: str, status: int = REFUSED) -> None:
        super().__init__(text)
        self.status = status
