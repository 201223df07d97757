"""The exceptions of mq9: one hierarchy for the store, the broker's refusals and the client.

What a store raises and what a broker refuses have the same cause and so the same class: a missing
mailbox is `MailboxNotFound` in a process of its own and across the network.
"""

from collections.abc import Mapping

from mq9._core import (
    DiskFull,
    ExportError,
    GroupNotFound,
    InvalidAddress,
    InvalidField,
    MailboxExists,
    MailboxFull,
    MailboxNotFound,
    MessageNotFound,
    MessageTooLarge,
    MoreMessages,
    NewerFormat,
    NotGiven,
    QuotaExceeded,
    StorageError,
    StoreError,
    StoreLocked,
    TooManyGroups,
    WritesStopped,
)

Mq9Error = StoreError
"""The root of them all; the native module defines it under the store's name."""


class InvalidRequest(Mq9Error, ValueError):
    """The broker refused a request: a field is missing, unknown or out of range."""


class AgentNotFound(Mq9Error):
    """No agent is registered with this mailbox, or its time is over."""


class AccessDenied(Mq9Error):
    """The user may not connect, or may not do this."""


class BrokerUnavailable(Mq9Error):
    """There is no connection to a broker."""


class InternalError(Mq9Error):
    """The broker failed at a request by a mistake of its own; its log says more."""


class ConnectionLost(BrokerUnavailable):
    """The connection broke while a request was under way: it may have been carried out or not."""


class NoResponders(BrokerUnavailable):
    """Nobody answers this command: the server is no mq9 broker, or one that does not have it."""


class RequestTimeout(Mq9Error, TimeoutError):
    """No answer in time: the request may have been carried out or not."""


class ClientClosed(Mq9Error):
    """The client was closed."""


class PartlySent(Mq9Error):
    """Some messages of a batch were not stored, or may not have been."""

    def __init__(self, text: str, msg_ids: list[int | None], errors: dict[int, StoreError]) -> None:
        super().__init__(text)
        self.msg_ids = msg_ids
        """Per message its `msg_id`; None for a delayed one and for one with an error."""
        self.errors = errors
        """What went wrong, by the message's place in the batch, from 0."""


KINDS: Mapping[str, type[Mq9Error]] = {
    "access_denied": AccessDenied,
    "agent_not_found": AgentNotFound,
    "disk_full": DiskFull,
    "group_not_found": GroupNotFound,
    "internal_error": InternalError,
    "invalid_address": InvalidAddress,
    "invalid_request": InvalidRequest,
    "mailbox_exists": MailboxExists,
    "mailbox_full": MailboxFull,
    "mailbox_not_found": MailboxNotFound,
    "message_not_found": MessageNotFound,
    "message_too_large": MessageTooLarge,
    "more_messages": MoreMessages,
    "not_given": NotGiven,
    "quota_exceeded": QuotaExceeded,
    "storage_error": StorageError,
    "too_many_groups": TooManyGroups,
    "unknown_command": NoResponders,
    "writes_stopped": WritesStopped,
}
"""The words with which a broker says why it refuses, in the header `mq9-error` of its replies."""


def kind_of(error: Mq9Error) -> str:
    """The word for what a store refuses."""
    kinds = (kind for kind, known in KINDS.items() if isinstance(error, known))
    # What is left is wrong with the request, or no fault of it: a store that is closed.
    return next(kinds, "invalid_request" if isinstance(error, ValueError) else "store_error")


__all__ = [
    "AccessDenied",
    "AgentNotFound",
    "BrokerUnavailable",
    "ClientClosed",
    "ConnectionLost",
    "DiskFull",
    "ExportError",
    "GroupNotFound",
    "InternalError",
    "InvalidAddress",
    "InvalidField",
    "InvalidRequest",
    "MailboxExists",
    "MailboxFull",
    "MailboxNotFound",
    "MessageNotFound",
    "MessageTooLarge",
    "MoreMessages",
    "Mq9Error",
    "NewerFormat",
    "NoResponders",
    "NotGiven",
    "PartlySent",
    "QuotaExceeded",
    "RequestTimeout",
    "StorageError",
    "StoreError",
    "StoreLocked",
    "TooManyGroups",
    "WritesStopped",
]
