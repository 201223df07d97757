"""MAILBOX.UPDATE: a mailbox is changed; what the request does not name stays as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from mq9.commands.address import check_address
from mq9.commands.dispatcher import Call, Command
from mq9.commands.mailbox import POLICY_FIELDS, PolicyRequest, policy_of, span_ms
from mq9.commands.permission import check_may_send
from mq9.commands.reply import Reply
from mq9.commands.request import read

if TYPE_CHECKING:
    from mq9._core import _PolicyChanges as PolicyChanges
    from mq9.commands.context import ServerContext
    from mq9.commands.mailbox import Policy
    from mq9.commands.owner import Owners
    from mq9.commands.public import PublicMailboxes


class UpdateRequest(PolicyRequest):
    """What changes, and who asks; an empty `dead_letter` is none from now on."""

    token: str | None = None


class UpdateReply(Reply):
    """Which mailbox was changed."""

    mail_address: str = ""


class Update:
    """Carries out MAILBOX.UPDATE."""

    def __init__(self, server: ServerContext, owners: Owners, public: PublicMailboxes) -> None:
        self._broker = server.broker
        self._store = server.store
        self._owners = owners
        self._public = public
        self.command = Command("MAILBOX.UPDATE.>", self._answer)

    def _answer(self, call: Call) -> UpdateReply:
        request = read(UpdateRequest, call.payload)
        check_address(call.tail)
        mailbox = self._owners.check(call, call.tail, request.token)
        if request.dead_letter and request.dead_letter != mailbox.policy.dead_letter:
            check_address(request.dead_letter, "dead_letter")
            check_may_send(self._broker, call.cid, request.dead_letter, "dead_letter")
            self._owners.check_neighbours(call, request.dead_letter, request.neighbour_token)
        has_ttl = request.ttl is not None or request.ttl_ms is not None
        self._store.update_mailbox(
            call.tail,
            _changes(request),
            ttl_ms=span_ms(request, "ttl") if has_ttl else None,
            desc=request.desc,
        )
        if request.public:
            self._public.add(call.tail)
        return UpdateReply(mail_address=call.tail)


def _changes(request: UpdateRequest) -> PolicyChanges:
    policy: Policy = {**policy_of(request), "dead_letter": request.dead_letter or None}
    named = (name for field, name in POLICY_FIELDS.items() if getattr(request, field) is not None)
    return cast("PolicyChanges", {name: cast("dict[str, object]", policy)[name] for name in named})
