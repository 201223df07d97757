"""Query strings of the monitoring port, read as nats-server reads them."""

from collections.abc import Mapping


class QueryError(ValueError):
    """A parameter that cannot be used; the text goes to whoever asked."""


def boolean(query: Mapping[str, str], name: str) -> bool:
    """A parameter that Go's ParseBool understands; absent is false."""
    text = query.get(name, "")
    if text in {"1", "t", "T", "true", "TRUE", "True"}:
        return True
    if text in {"", "0", "f", "F", "false", "FALSE", "False"}:
        return False
    raise QueryError(f"Error decoding boolean for '{name}': {text!r} is neither true nor false")


def integer(query: Mapping[str, str], name: str) -> int:
    """A number; absent is 0."""
    text = query.get(name, "")
    if not text:
        return 0
    try:
        if len(text) > 20:
            raise ValueError
        return int(text)
    except ValueError:
        raise QueryError(f"Error decoding int for '{name}': {text!r} is not a number") from None
