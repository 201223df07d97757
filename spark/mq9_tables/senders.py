"""Who sent a message, as far as the message says: in its headers, or in a JSON envelope."""

from pyspark.sql import Column
from pyspark.sql import functions as F

SENDER_HEADERS = ("from", "mq9-from", "sender", "x-from")
MOVED_HEADER = "mq9-dead-mailbox"
REPLY_HEADERS = ("reply-to", "mq9-reply-to")

_ENVELOPE = "struct<`from`: string, sender: string, reply_to: string, replyTo: string>"


def _header(names: tuple[str, ...]) -> Column:
    """The value of the first header with one of the names, in upper or lower case."""
    found = F.filter("headers", lambda header: F.lower(header["name"]).isin(*names))
    return _text(F.get(found, F.lit(0))["value"])


def _text(value: Column) -> Column:
    """A name; nothing where there are only spaces."""
    return F.nullif(F.trim(value), F.lit(""))


def _envelope() -> Column:
    """The fields of a payload that is a JSON object; nothing of any other."""
    # Most payloads that are no JSON are told by their first byte, without parsing them.
    opens = F.substring(F.col("payload"), 1, 1) == F.lit(b"{")
    text = F.when(opens, F.col("payload").cast("string"))
    return F.from_json(text, _ENVELOPE)


def sender() -> Column:
    """Who sent the message: the agent it names, else the address it wants replies at.

    Nobody sent what the broker moved to a dead-letter mailbox.
    """
    moved = F.exists("headers", lambda header: header["name"] == MOVED_HEADER)
    envelope = _envelope()
    named = F.coalesce(
        _header(SENDER_HEADERS),
        _text(envelope["from"]),
        _text(envelope["sender"]),
        _header(REPLY_HEADERS),
        _text(envelope["reply_to"]),
        _text(envelope["replyTo"]),
    )
    return F.when(~F.coalesce(moved, F.lit(False)), named)
