"""Which exception stands for what a broker answered.

The protocol has texts, not codes: this is the only place that reads them.
"""

import re

from mq9 import errors

_TEXTS: tuple[tuple[re.Pattern[str], type[errors.Mq9Error]], ...] = tuple(
    (re.compile(rf"\A(?:{pattern})", re.DOTALL), kind)
    for pattern, kind in (
        (r"mailbox .* does not exist$", errors.MailboxNotFound),
        (r"mailbox .* already exists(?:: |$)", errors.MailboxExists),
        (r"permission denied: ", errors.AccessDenied),
        (r"agent .* is not registered$", errors.AgentNotFound),
        (r"message not found$", errors.MessageNotFound),
        (r"invalid mail_address ", errors.InvalidAddress),
        (r"group .* does not exist$", errors.GroupNotFound),
        (r"group .* has not been given msg_id ", errors.NotGiven),
        (r"message of \d+ bytes is larger than ", errors.MessageTooLarge),
        (r"mailbox .* is full: ", errors.MailboxFull),
        (r"quota max_groups reached: ", errors.TooManyGroups),
        (r"quota \w+ reached: ", errors.QuotaExceeded),
        (r"the disk is full: ", errors.DiskFull),
        (r"writes stopped after a failed sync ", errors.WritesStopped),
        (r"cannot \w+ \S+: ", errors.StorageError),
    )
)


def refusal(text: str) -> errors.Mq9Error:
    """The exception for the `error` of a reply."""
    for pattern, kind in _TEXTS:
        if pattern.match(text):
            return kind(text)
    return errors.InvalidRequest(text)
