"""PUBLIC.LIST: the mailboxes that want to be found."""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel

from mq9.commands.dispatcher import Call, Command
from mq9.commands.reply import Reply
from mq9.commands.request import Request, between, read
from mq9.commands.times import created, expires

if TYPE_CHECKING:
    from collections.abc import Generator

    from mq9.commands.dispatcher import Steps
    from mq9.store import MailboxInfo, Store

_LIMIT = 100
_MAX_REPLY_BYTES = 1 << 20
# Mailboxes looked at before others have their turn.
_STEP = 64
# Addresses of mailboxes that may be gone, before they are looked for again.
_SPARE = 1000


class ListRequest(Request):
    """Which part of the list."""

    limit: Annotated[int, between(1, 1000)] | None = None
    after: str | None = None


class PublicMailbox(BaseModel):
    """One public mailbox; times in seconds, `expires` 0 is never."""

    mail_id: str
    desc: str
    created: int
    expires: int
    messages: int


class ListReply(Reply):
    """Mailboxes by address; if there are `more`, the last `mail_id` is the next `after`."""

    mailboxes: tuple[PublicMailbox, ...] = ()
    more: bool | None = None


class PublicMailboxes:
    """The addresses of all public mailboxes, in order; found in the store when first asked for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._addresses: list[str] = []
        self._known: set[str] = set()
        self._loading = 0
        self._loaded = False
        self._forgotten = 0
        self._most = 0
        self.command = Command("PUBLIC.LIST", self._answer)

    def add(self, address: str) -> None:
        """A public mailbox was created."""
        if self._loaded and len(self._addresses) > self._most:
            # Many of these may have expired: look again when someone asks.
            self._loaded = False
            self._forgotten += 1
            self._addresses.clear()
            self._known.clear()
        if (self._loaded or self._loading) and address not in self._known:
            self._known.add(address)
            insort(self._addresses, address)

    def _answer(self, call: Call) -> Steps:
        return self._list(read(ListRequest, call.payload))

    def _list(self, request: ListRequest) -> Steps:
        limit, after = request.limit or _LIMIT, request.after
        found: list[PublicMailbox] = []
        size = 0
        while True:
            while not self._loaded:
                yield from self._load()
            at = 0 if after is None else bisect_right(self._addresses, after)
            step = self._addresses[at : at + _STEP]
            if not step:
                return ListReply(mailboxes=tuple(found))
            # One look for all of them: each look has the broker's thread do something.
            looked_at = self._store.mailboxes_at(step)
            for mailbox in looked_at:
                # The address may have no mailbox any more, or a new, private one.
                if mailbox is None or not mailbox.policy.public:
                    continue
                if len(found) == limit or size > _MAX_REPLY_BYTES:
                    return ListReply(mailboxes=tuple(found), more=True)
                listed = _public(mailbox)
                found.append(listed)
                size += len(listed.model_dump_json())
            after = step[len(looked_at) - 1]
            yield None

    def _load(self) -> Generator[None, None, None]:
        # Meanwhile new ones are added, and others may be looking as well: both do no harm.
        self._loading += 1
        forgotten = self._forgotten
        try:
            start: int | None = 0
            while start is not None:
                mailboxes, start = self._store.mailboxes(start, _STEP)
                for mailbox in mailboxes:
                    if mailbox.policy.public:
                        self.add(mailbox.address)
                yield
        finally:
            self._loading -= 1
        if forgotten == self._forgotten:
            self._most = 2 * len(self._addresses) + _SPARE
            self._loaded = True


def _public(mailbox: MailboxInfo) -> PublicMailbox:
    return PublicMailbox(
        mail_id=mailbox.address,
        desc=mailbox.desc,
        created=created(mailbox),
        expires=expires(mailbox),
        messages=mailbox.messages,
    )
