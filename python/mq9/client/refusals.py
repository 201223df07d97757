"""Maps refusals of a broker to exceptions, by a header; their text is for people."""

from collections.abc import Mapping

from mq9 import errors

_KIND = "mq9-error"


def refusal(text: str, headers: Mapping[str, str] | None) -> errors.Mq9Error:
    """The exception for the `error` of a reply with these headers."""
    kind = errors.KINDS.get((headers or {}).get(_KIND, ""), errors.InvalidRequest)
    return kind(text)
