"""The times of a mailbox as they go over the wire: whole seconds."""

from mq9.store import MailboxInfo


def created(mailbox: MailboxInfo) -> int:
    """When it was created."""
    return mailbox.created_ms // 1000


def expires(mailbox: MailboxInfo) -> int:
    """When it expires, never told earlier than it is; 0 is never."""
    return -(-mailbox.expires_ms // 1000)
