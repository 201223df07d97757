"""Ownership of mailboxes: the token, or an operator, allows to remove, empty or change one.

To know the address is not enough: senders know it too.
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
        if token is not None and self._is_token(token, mailbox):
            return mailbox
        subject = f"{PREFIX}ADMIN.{call.subject.removeprefix(PREFIX)}"
        if is_operator(self._clients.open.get(call.cid), subject):
            return mailbox
        given = "is not that of this mailbox" if token is not None else "is missing"
        raise Refusal(
            f"permission denied: the token {given}; only its creator and operators may do this",
            "access_denied",
        )

    def _is_token(self, token: str, mailbox: MailboxInfo) -> bool:
        right = self._tokens.of(mailbox.address, mailbox.created_ms)
        # How long it takes must not tell how much of it is right.
        return hmac.compare_digest(token.encode(errors="replace"), right.encode())
