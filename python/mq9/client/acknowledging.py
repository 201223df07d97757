"""ACK: its request."""

from collections.abc import Mapping, Sequence
from typing import Any

from mq9.client.message import Message
from mq9.errors import InvalidField


def ack_body(
    messages: Sequence[Message],
    address: str | None,
    group: str | None,
    msg_ids: Sequence[int],
    fields: Mapping[str, Any],
) -> dict[str, Any]:
    """Acknowledges messages of one mailbox and one group, given as messages, as ids or as both."""
    ids = [*msg_ids, *(message.msg_id for message in messages)]
    addresses = {message.address for message in messages} | ({address} - {None})
    groups = {message.group for message in messages} | ({group} - {None})
    if len(addresses) != 1 or len(groups) != 1 or None in groups:
        raise InvalidField(
            "messages are acknowledged for one mailbox and one group: give messages that were "
            "fetched with a group, or address, group and msg_ids"
        )
    [address], [group] = addresses, groups
    return {
        "group_name": group,
        "mail_address": address,
        **({"msg_id": ids[0]} if len(ids) == 1 else {"msg_ids": ids}),
        **fields,
    }
