"""Permissions of a client beyond publishing the request, which the broker has checked.

The commands for operators are for users whose permissions name them, and for local clients: a
client that may publish anything was never given the addresses of others. And a permission counts
for what is done: a client that has the broker send something must be allowed to send it.
"""

from mq9._core import Broker
from mq9.commands.context import Client
from mq9.commands.request import Refusal, shown
from mq9.config import Options, PermissionRules

_ADMIN = ["$mq9", "AI", "ADMIN"]


def is_operator(client: Client | None, subject: str) -> bool:
    """Whether this client may use the command for operators with this subject."""
    if client is None:
        return False
    if client.is_local_operator:
        return True
    return is_granted(client.grant.rules if client.grant else None, subject)


def user_of(client: Client | None, options: Options) -> str:
    """Who asks, where clients have to say so; a name that was not proven is nobody's."""
    grant = client.grant if client else None
    if grant is None or not options.authorization.required:
        return ""
    return grant.user


def check_may_send(broker: Broker, cid: int, address: str, field: str) -> None:
    """Refuse a field that has the broker send to a mailbox where its client may not send.

    A client that has gone in the meantime may do nothing.
    """
    if not broker.may_publish(cid, f"$mq9.AI.MSG.SEND.{address}"):
        raise Refusal(
            f"permission denied: {field} needs the permission to send to {shown(address)}",
            "access_denied",
        )


def is_granted(rules: PermissionRules | None, subject: str) -> bool:
    """Whether the rules allow this subject in so many words, and nothing denies it."""
    if rules is None or rules.publish_allow is None:
        return False
    named = (allowed for allowed in rules.publish_allow if allowed.split(".")[:3] == _ADMIN)
    denied = any(_matches(pattern, subject) for pattern in rules.publish_deny)
    return not denied and any(_matches(pattern, subject) for pattern in named)


def _matches(pattern: str, subject: str) -> bool:
    given = subject.split(".")
    wanted = pattern.split(".")
    if wanted[-1] == ">" and len(given) >= len(wanted):
        wanted, given = wanted[:-1], given[: len(wanted) - 1]
    return len(wanted) == len(given) and all(
        token in ("*", other) for token, other in zip(wanted, given, strict=True)
    )
