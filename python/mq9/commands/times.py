"""The times of a mailbox as they go over the wire: whole seconds."""

from mq9.store import MailboxInfo


def created(mailbox: MailboxInfo) -> int:
    """When it was created."""
    return mailbox.created_ms // 1000


def expires(mailbox: MailboxInfo) -> int:
    """When it expires: `created` plus its `ttl`, to the second; 0 is never."""
    if mailbox.expires_ms == 0:
        return 0
    return created(mailbox) + -(-(mailbox.expires_ms - mailbox.created_ms) // 1000)
