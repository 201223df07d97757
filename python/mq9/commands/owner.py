"""Ownership of mailboxes: the token, or an operator, allows to remove, empty or change one.

To know the address is not enough: senders know it too. Nor does it allow to create a *neighbour*,
which would share subjects of push with the mailbox: `a.urgent` is one of `a`.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from mq9.commands.dispatcher import PREFIX, Call
from mq9.commands.permission import is_operator
from mq9.commands.request import Refusal

if TYPE_CHECKING:
    from mq9.commands.context import ServerContext
    from mq9.commands.tokens import Tokens
    from mq9.store import MailboxInfo


_PRIORITIES = ("critical", "urgent", "normal", "notify")


class Owners:
    """Tells owners of mailboxes from everybody else."""

    def __init__(self, server: ServerContext, tokens: Tokens) -> None:
        self._clients = server.clients
        self._store = server.store
        self._tokens = tokens

    def check(self, call: Call, address: str, token: str | None) -> MailboxInfo:
        """The mailbox, if the request has its token or comes from an operator.

        An operator of `$mq9.AI.MAILBOX.REMOVE.<address>` is who may publish to
        `$mq9.AI.ADMIN.MAILBOX.REMOVE.<address>` by that name; so for every command.
        """
        # Not a secret: SEND tells everyone who knows the address.
        mailbox = self._store.mailbox(address)
        if self._owns(call, mailbox, token):
            return mailbox
        given = "is not that of this mailbox" if token is not None else "is missing"
        raise Refusal(
            f"permission denied: the token {given}; only its creator and operators may do this",
            "access_denied",
        )

    def check_neighbours(self, call: Call, address: str, token: str | None) -> None:
        """Refuse the address of a mailbox to be, if it has neighbours that are not the client's."""
        asked = [address, *_neighbours(address)]
        found: list[MailboxInfo | None] = []
        while len(found) < len(asked):
            found += self._store.mailboxes_at(asked[len(found) :])
        if found[0] is not None:
            return
        for neighbour in found[1:]:
            if neighbour is not None and not self._owns(call, neighbour, token):
                raise Refusal(
                    f"permission denied: {address} would share subjects with mailbox "
                    f"{neighbour.address}: neighbour_token must be its token; operators need none",
                    "access_denied",
                )

    def _owns(self, call: Call, mailbox: MailboxInfo, token: str | None) -> bool:
        if token is not None and self._is_token(token, mailbox):
            return True
        subject = f"{PREFIX}ADMIN.{call.subject.removeprefix(PREFIX)}"
        return is_operator(self._clients.open.get(call.cid), subject)

    def _is_token(self, token: str, mailbox: MailboxInfo) -> bool:
        right = self._tokens.of(mailbox.address, mailbox.created_ms)
        # How long it takes must not tell how much of it is right.
        return hmac.compare_digest(token.encode(errors="replace"), right.encode())


def _neighbours(address: str) -> list[str]:
    """The addresses that differ from this one by a priority at the end."""
    base, _, word = address.rpartition(".")
    longer = [f"{address}.{priority}" for priority in _PRIORITIES]
    return [base, *longer] if base and word in _PRIORITIES else longer
