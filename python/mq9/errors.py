"""The exceptions of mq9. All that a store raises are kinds of `StoreError`."""

from mq9._core import (
    DiskFull,
    InvalidAddress,
    InvalidField,
    MailboxExists,
    MailboxFull,
    MailboxNotFound,
    MessageNotFound,
    MessageTooLarge,
    NewerFormat,
    NotGiven,
    StorageError,
    StoreError,
    StoreLocked,
    TooManyGroups,
    WritesStopped,
)

__all__ = [
    "DiskFull",
    "InvalidAddress",
    "InvalidField",
    "MailboxExists",
    "MailboxFull",
    "MailboxNotFound",
    "MessageNotFound",
    "MessageTooLarge",
    "NewerFormat",
    "NotGiven",
    "StorageError",
    "StoreError",
    "StoreLocked",
    "TooManyGroups",
    "WritesStopped",
]
