"""The message store: mailboxes, messages and groups in one directory."""

from mq9._core import (
    Completion,
    Damage,
    GroupInfo,
    MailboxInfo,
    Message,
    NewMessage,
    Policy,
    Store,
    StoreInfo,
    Waiting,
)

__all__ = [
    "Completion",
    "Damage",
    "GroupInfo",
    "MailboxInfo",
    "Message",
    "NewMessage",
    "Policy",
    "Store",
    "StoreInfo",
    "Waiting",
]
