"""ADMIN.STATUS, ADMIN.MAILBOX.LIST and SHOW: how the broker is and all it holds, for operators."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel

from mq9 import __version__
from mq9.commands.address import check_address
from mq9.commands.dead_letters import RESOLVED, STORE
from mq9.commands.dispatcher import Call, Command
from mq9.commands.mailbox import LEVELS
from mq9.commands.permission import is_operator
from mq9.commands.reply import Reply
from mq9.commands.request import Nothing, Refusal, Request, between, read
from mq9.commands.schedules import SCHEDULES
from mq9.commands.times import created, expires
from mq9.errors import MailboxNotFound
from mq9.registry.registry import AGENTS, REPORTS

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from mq9.commands.context import ServerContext
    from mq9.commands.dispatcher import Steps
    from mq9.store import GroupInfo, MailboxInfo, Policy

_LIMIT = 100
# Made by the core.
_BROADCASTS = "$broadcasts"
# What the names of the broker's own mailboxes begin with.
_OWN = "$"
_MAX_REPLY_BYTES = 1 << 20
# What is looked at before others have their turn.
_STEP_MAILBOXES = 16
_STEP_MESSAGES = 128
_STEP_BYTES = 64 << 10


class AdminListRequest(Request):
    """Which part of the list: `start` is the `next` of the part before."""

    limit: Annotated[int, between(1, 1000)] | None = None
    start: Annotated[int, between(0, 2**32 - 1)] | None = None


class MailboxSummary(BaseModel):
    """One mailbox of a list; times in seconds, `expires` 0 is never."""

    mail_address: str
    desc: str
    created: int
    expires: int
    type: Literal["standard", "latest"]
    public: bool
    messages: int
    delayed: int
    bytes: int
    groups: int


class AdminListReply(Reply):
    """A part of all mailboxes; without `next` it is the last one."""

    mailboxes: tuple[MailboxSummary, ...] = ()
    next: int | None = None
    total: int | None = None


_PRIORITIES = {level: name for name, level in reversed(LEVELS.items())}


class PolicyDetails(BaseModel):
    """How a mailbox behaves, in the words of CREATE; 0 is no limit or the default."""

    type: Literal["standard", "latest"]
    public: bool
    retention: Literal["limits", "work_queue"]
    ack_wait_ms: int
    max_deliver: int
    dead_letter: str
    max_ack_pending: int
    max_msgs: int
    max_bytes: int
    max_age: int
    max_msg_size: int
    discard: Literal["old", "new"]
    group_ttl_ms: int | None
    """None is the setting of the broker; 0 is for ever."""
    dedup_window: int
    message_ttls: dict[str, int]


class GroupDetails(BaseModel):
    """A group: messages given out and not acknowledged, and messages not given out yet."""

    name: str
    pending: int
    lag: int


class MailboxDetails(BaseModel):
    """All that is known of a mailbox."""

    mail_address: str
    desc: str
    created: int
    expires: int
    messages: int
    delayed: int
    bytes: int
    next_id: int
    policy: PolicyDetails
    groups: list[GroupDetails]


class AdminShowReply(Reply):
    """One mailbox; null with an error."""

    mailbox: MailboxDetails | None = None

    def json_bytes(self) -> bytes:
        """The reply as it is sent."""
        return self.model_dump_json().encode()


class AdminStatusReply(Reply):
    """How the broker is, in numbers that cost nothing to tell."""

    version: str = __version__
    clients: int = 0
    mailboxes: int = 0
    waiting: int = 0
    """FETCHes that wait for messages."""
    log_bytes: int = 0
    live_bytes: int = 0
    damage: int = 0
    """Places of damage found since the start."""
    writes_stopped: str = ""
    """Why nothing can be stored; empty if all is well."""


class Admin:
    """Carries out the commands for operators."""

    def __init__(self, server: ServerContext) -> None:
        self._clients = server.clients
        self._store = server.store
        self.list = Command("ADMIN.MAILBOX.LIST", self._answer_list)
        self.status = Command(
            "ADMIN.STATUS",
            self._answer_status,
            is_durable=lambda: True,
        )
        self.show = Command("ADMIN.MAILBOX.SHOW.>", self._answer_show)

    def _answer_list(self, call: Call) -> Steps:
        self._check(call)
        request = read(AdminListRequest, call.payload)
        return self._list(request)

    def _answer_status(self, call: Call) -> AdminStatusReply:
        self._check(call)
        read(Nothing, call.payload)
        info = self._store.info()
        return AdminStatusReply(
            clients=len(self._clients.open),
            mailboxes=info.mailboxes - self._own(),
            waiting=info.waiting,
            log_bytes=info.log_bytes,
            live_bytes=info.live_bytes,
            damage=len(self._store.damage()),
            writes_stopped=info.writes_stopped or "",
        )

    def _answer_show(self, call: Call) -> Steps:
        self._check(call)
        read(Nothing, call.payload)
        check_address(call.tail)
        return self._show(call.tail)

    def _check(self, call: Call) -> None:
        """Before anything else is said: whether a mailbox exists is not for everyone."""
        if not is_operator(self._clients.open.get(call.cid), call.subject):
            raise Refusal(
                "permission denied: this command is for users whose permissions allow publishing "
                'to "$mq9.AI.ADMIN.>" by that name',
                "access_denied",
            )

    def _list(self, request: AdminListRequest) -> Steps:
        found: list[MailboxSummary] = []
        left, size = request.limit or _LIMIT, 0
        start: int | None = request.start or 0
        while start is not None and left and size < _MAX_REPLY_BYTES:
            step, start = self._store.mailboxes(start, min(left, _STEP_MAILBOXES))
            # Those of the broker itself are nobody's to use.
            summaries = [_summary(each) for each in step if not each.address.startswith(_OWN)]
            found += summaries
            left -= len(summaries)
            size += sum(len(summary.model_dump_json()) for summary in summaries)
            yield None
        total = self._store.info().mailboxes - self._own()
        return AdminListReply(mailboxes=tuple(found), next=start, total=total)

    def _own(self) -> int:
        count = 0
        for address in (AGENTS, REPORTS, RESOLVED, SCHEDULES, STORE, _BROADCASTS):
            with suppress(MailboxNotFound):
                self._store.mailbox(address)
                count += 1
        return count

    def _show(self, address: str) -> Steps:
        mailbox = self._store.mailbox(address)
        lags = yield from self._lags(address, mailbox.groups)
        groups = [
            GroupDetails(name=group.name, pending=group.outstanding, lag=lag)
            for group, lag in zip(mailbox.groups, lags, strict=True)
        ]
        details = MailboxDetails(
            mail_address=mailbox.address,
            desc=mailbox.desc,
            created=created(mailbox),
            expires=expires(mailbox),
            messages=mailbox.messages,
            delayed=mailbox.delayed,
            bytes=mailbox.bytes,
            next_id=mailbox.next_id,
            policy=_policy(mailbox.policy),
            groups=groups,
        )
        return AdminShowReply(mailbox=details)

    def _lags(self, address: str, groups: Sequence[GroupInfo]) -> Generator[None, None, list[int]]:
        """For each group, how many messages lie at or behind the cursor of their level."""
        lags = [0] * len(groups)
        cursors = [group.cursors for group in groups]
        after = min((min(levels) for levels in cursors), default=0) - 1
        while groups:
            step = self._store.query(
                address,
                after_id=after if after >= 0 else None,
                limit=_STEP_MESSAGES,
                max_bytes=_STEP_BYTES,
            )
            if not step:
                break
            for at, levels in enumerate(cursors):
                lags[at] += sum(message.msg_id >= levels[message.level - 1] for message in step)
                if at % _STEP_MAILBOXES == 0:
                    yield
            after = step[-1].msg_id
        return lags


def _summary(mailbox: MailboxInfo) -> MailboxSummary:
    return MailboxSummary(
        mail_address=mailbox.address,
        desc=mailbox.desc,
        created=created(mailbox),
        expires=expires(mailbox),
        type="latest" if mailbox.policy.latest else "standard",
        public=mailbox.policy.public,
        messages=mailbox.messages,
        delayed=mailbox.delayed,
        bytes=mailbox.bytes,
        groups=len(mailbox.groups),
    )


def _policy(policy: Policy) -> PolicyDetails:
    return PolicyDetails(
        type="latest" if policy.latest else "standard",
        public=policy.public,
        retention="work_queue" if policy.work_queue else "limits",
        ack_wait_ms=policy.ack_wait_ms,
        max_deliver=policy.max_deliver,
        dead_letter=policy.dead_letter or "",
        max_ack_pending=policy.max_ack_pending,
        max_msgs=policy.max_msgs,
        max_bytes=policy.max_bytes,
        max_age=policy.max_age_ms // 1000,
        max_msg_size=policy.max_msg_size,
        discard=policy.discard,
        group_ttl_ms=policy.group_ttl_ms,
        dedup_window=policy.dedup_window_ms // 1000,
        message_ttls={
            _PRIORITIES[level]: ttl_ms // 1000 for level, ttl_ms in policy.message_ttls_ms.items()
        },
    )
