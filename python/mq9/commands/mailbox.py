"""MAILBOX.CREATE: a mailbox with its life, kind and policy."""

from __future__ import annotations

import base64
import secrets
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from mq9.commands.address import check_address
from mq9.commands.dispatcher import PREFIX, Call, Command
from mq9.commands.permission import check_may_send, is_operator, user_of
from mq9.commands.reply import Reply
from mq9.commands.request import MAX_SECONDS, Refusal, Request, between, read, shown
from mq9.errors import MailboxExists

if TYPE_CHECKING:
    from mq9.commands.context import Client, ServerContext
    from mq9.commands.owner import Owners
    from mq9.commands.public import PublicMailboxes
    from mq9.commands.tokens import Tokens

_MAX_ACK_WAIT_S = 7 * 24 * 3600
_MAX_DEDUP_WINDOW_S = 7 * 24 * 3600
_MAX_COUNT = 2**32 - 1
_MAX_SIZE = 2**63 - 1
# 160 random bits.
_RANDOM_BYTES = 20
_NOT_YET = ("backoff", "subjects")

LEVELS = {"critical": 1, "urgent": 3, "normal": 5, "notify": 9} | {
    str(number): number for number in range(1, 11)
}
"""Priorities by name and by number."""

_Seconds = Annotated[int, between(0, MAX_SECONDS)]
_Milliseconds = Annotated[int, between(0, MAX_SECONDS * 1000)]
_AckWait = Annotated[int, between(0, _MAX_ACK_WAIT_S)]
_AckWaitMs = Annotated[int, between(0, _MAX_ACK_WAIT_S * 1000)]
_DedupWindow = Annotated[int, between(0, _MAX_DEDUP_WINDOW_S)]
_Count = Annotated[int, between(0, _MAX_COUNT)]
_Size = Annotated[int, between(0, _MAX_SIZE)]


class PolicyRequest(Request):
    """What a mailbox may be asked to be; times in seconds, 0 is no limit or the default."""

    ttl: _Seconds | None = None
    ttl_ms: _Milliseconds | None = None
    desc: str | None = None
    type: Literal["standard", "latest"] | None = None
    public: bool | None = None
    retention: Literal["limits", "work_queue"] | None = None
    ack_wait: _AckWait | None = None
    ack_wait_ms: _AckWaitMs | None = None
    max_deliver: _Count | None = None
    dead_letter: str | None = None
    max_ack_pending: _Count | None = None
    group_ttl: _Seconds | None = None
    group_ttl_ms: _Milliseconds | None = None
    max_msgs: _Size | None = None
    max_bytes: _Size | None = None
    max_age: _Seconds | None = None
    max_age_ms: _Milliseconds | None = None
    max_msg_size: _Size | None = None
    message_ttls: dict[str, _Seconds] | None = None
    discard: Literal["old", "new"] | None = None
    dedup_window: _DedupWindow | None = None
    backoff: Any = None
    subjects: Any = None
    neighbour_token: str | None = None


class CreateRequest(PolicyRequest):
    """A mailbox that is to be, and how it is asked for."""

    name: str | None = None
    token: bool | None = None
    exist_ok: bool | None = None


class CreateReply(Reply):
    """The address, and for a client of the first dialects what goes with it."""

    mail_address: str = ""
    mail_id: str | None = None
    token: str | None = None
    inbox: str | None = None
    created: bool | None = None


class Create:
    """Carries out MAILBOX.CREATE."""

    def __init__(
        self, server: ServerContext, tokens: Tokens, owners: Owners, public: PublicMailboxes
    ) -> None:
        self._server = server
        self._owners = owners
        self._store = server.store
        self._tokens = tokens
        self._public = public
        self.command = Command("MAILBOX.CREATE", self._answer)

    def _answer(self, call: Call) -> CreateReply:
        request = read(CreateRequest, call.payload)
        address = _generated() if request.name is None else request.name
        # The store has names of its own as well, which are nobody's address.
        check_address(address)
        if request.dead_letter is not None:
            check_address(request.dead_letter, "dead_letter")
            check_may_send(self._server.broker, call.cid, request.dead_letter, "dead_letter")
            self._owners.check_neighbours(call, request.dead_letter, request.neighbour_token)
        if request.name is not None:
            # Nobody knows a generated address beforehand.
            self._owners.check_neighbours(call, address, request.neighbour_token)
        created = self._create(address, request, call)
        if request.name is not None and request.type is None and request.public is None:
            token = self._token(address) if request.token and created else None
            return CreateReply(
                mail_address=address, token=token, created=None if created else False
            )
        return CreateReply(
            mail_address=address,
            mail_id=address,
            # Whoever finds it there is not its creator.
            token=self._token(address) if created else "",
            inbox=f"{PREFIX}INBOX.{address}",
            created=None if created else False,
        )

    def _create(self, address: str, request: CreateRequest, call: Call) -> bool:
        """False if it was there, and the request may find it so."""
        policy = policy_of(request)
        owner = user_of(call.client, self._server.options) or None
        ttl_ms = span_ms(request, "ttl", self._server.options.default_ttl_ms)
        try:
            self._store.create_mailbox(
                address, ttl_ms=ttl_ms, desc=request.desc or "", owner=owner, **policy
            )
        except MailboxExists:
            if request.exist_ok:
                different = self._different(address, request, policy)
                _refuse_different(address, different, call.client)
            elif not request.public:
                raise
            return False
        if request.public:
            self._public.add(address)
        return True

    def _different(
        self, address: str, request: CreateRequest, policy: Policy
    ) -> dict[str, tuple[object, object]]:
        """In what a mailbox is not as the request says it should be: as it is, and as it says."""
        mailbox = self._store.mailbox(address)
        different: dict[str, tuple[object, object]] = {}
        for field, name in POLICY_FIELDS.items():
            if getattr(request, field) is None:
                continue
            given: object = policy[name]  # type: ignore[literal-required]
            found: object = getattr(mailbox.policy, name)
            if found != given:
                different[name] = found, given
        if request.ttl is not None or request.ttl_ms is not None:
            given_ms = span_ms(request, "ttl")
            found_ms = max(0, mailbox.expires_ms - mailbox.created_ms)
            if found_ms != given_ms:
                different["ttl_ms"] = found_ms, given_ms
        return different

    def _token(self, address: str) -> str:
        return self._tokens.of(address, self._store.mailbox(address).created_ms)


def _refuse_different(
    address: str, different: dict[str, tuple[object, object]], client: Client | None
) -> None:
    if not different:
        return
    if is_operator(client, f"{PREFIX}ADMIN.MAILBOX.SHOW.{address}"):
        told = ", ".join(
            f"its {name} is {shown(found)}, not {shown(given)}"
            for name, (found, given) in different.items()
        )
    else:
        # Senders know the name. That is no reason to tell them of other addresses.
        told = f"it differs in {', '.join(different)}"
    raise Refusal(f"mailbox {address} already exists: {told}", "mailbox_exists")


POLICY_FIELDS = {
    "type": "latest",
    "retention": "work_queue",
    "public": "public",
    "discard": "discard",
    "max_msgs": "max_msgs",
    "max_bytes": "max_bytes",
    "max_msg_size": "max_msg_size",
    "max_age": "max_age_ms",
    "max_age_ms": "max_age_ms",
    "message_ttls": "message_ttls_ms",
    "ack_wait": "ack_wait_ms",
    "ack_wait_ms": "ack_wait_ms",
    "max_deliver": "max_deliver",
    "max_ack_pending": "max_ack_pending",
    "group_ttl": "group_ttl_ms",
    "group_ttl_ms": "group_ttl_ms",
    "dedup_window": "dedup_window_ms",
    "dead_letter": "dead_letter",
}
"""Fields of a request, and their names in the policy of a mailbox."""


class Policy(TypedDict):
    """A policy in the words of the store."""

    latest: bool
    work_queue: bool
    public: bool
    discard: Literal["old", "new"]
    max_msgs: int
    max_bytes: int
    max_msg_size: int
    max_age_ms: int
    message_ttls_ms: dict[int, int]
    ack_wait_ms: int
    max_deliver: int
    max_ack_pending: int
    group_ttl_ms: int | None
    dedup_window_ms: int
    dead_letter: str | None


def policy_of(request: PolicyRequest) -> Policy:
    """The policy that a request asks for, with the default for what it leaves out."""
    for name in _NOT_YET:
        if getattr(request, name) is not None:
            raise Refusal(f"{name} is not supported by this version: leave it out")
    return {
        "latest": request.type == "latest",
        "work_queue": request.retention == "work_queue",
        "public": bool(request.public),
        "discard": request.discard or "old",
        "max_msgs": request.max_msgs or 0,
        "max_bytes": request.max_bytes or 0,
        "max_msg_size": request.max_msg_size or 0,
        "max_age_ms": span_ms(request, "max_age"),
        "message_ttls_ms": _message_ttls_ms(request),
        "ack_wait_ms": span_ms(request, "ack_wait"),
        "max_deliver": request.max_deliver or 0,
        "max_ack_pending": request.max_ack_pending or 0,
        "group_ttl_ms": _group_ttl_ms(request),
        "dedup_window_ms": (request.dedup_window or 0) * 1000,
        "dead_letter": request.dead_letter,
    }


def span_ms(request: PolicyRequest, name: str, default_ms: int = 0) -> int:
    """A span of time that can be told in seconds or in milliseconds."""
    in_s: int | None = getattr(request, name)
    in_ms: int | None = getattr(request, f"{name}_ms")
    if in_s is not None and in_ms is not None:
        raise Refusal(f"{name} and {name}_ms cannot both be given")
    if in_ms is not None:
        return in_ms
    return default_ms if in_s is None else in_s * 1000


def _message_ttls_ms(request: PolicyRequest) -> dict[int, int]:
    """By the number of the level; 0 is none of its own."""
    found: dict[int, int] = {}
    for name, seconds in (request.message_ttls or {}).items():
        level = LEVELS.get(name)
        if level is None:
            raise Refusal(
                f"message_ttls has a life for {shown(name)}: it must be for critical, urgent, "
                "normal, notify or a number from 1 to 10"
            )
        if level in found:
            raise Refusal(f"message_ttls has more than one life for {shown(name)}")
        found[level] = seconds * 1000
    return {level: ttl_ms for level, ttl_ms in found.items() if ttl_ms}


def _group_ttl_ms(request: PolicyRequest) -> int | None:
    """None is the broker's; 0 is for ever, as with `ttl`."""
    if request.group_ttl is None and request.group_ttl_ms is None:
        return None
    return span_ms(request, "group_ttl")


def _generated() -> str:
    return base64.b32encode(secrets.token_bytes(_RANDOM_BYTES)).decode().lower()
