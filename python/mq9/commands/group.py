"""GROUP.LIST and GROUP.REMOVE: the groups of a mailbox, for its owner."""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel

from mq9.commands.address import check_address
from mq9.commands.dispatcher import Call, Command
from mq9.commands.remove import OwnerRequest
from mq9.commands.reply import Reply
from mq9.commands.request import Refusal, between, read

if TYPE_CHECKING:
    from collections.abc import Callable

    from mq9.commands.owner import Owners
    from mq9.store import GroupInfo, Store

# The store knows none of a longer name.
_MAX_NAME = 255
_LIMIT = 100
_MAX_REPLY_BYTES = 1 << 20
_name: Callable[[GroupInfo], str] = attrgetter("name")


class ListGroupsRequest(OwnerRequest):
    """Who asks, and for which part of the list."""

    limit: Annotated[int, between(1, 1000)] | None = None
    after: str | None = None


class Group(BaseModel):
    """One group, and how many messages it has been given and not acknowledged."""

    name: str
    pending: int


class ListGroupsReply(Reply):
    """Groups by name; if there are `more`, the last `name` is the next `after`."""

    groups: tuple[Group, ...] = ()
    more: bool | None = None


class ListGroups:
    """Carries out GROUP.LIST."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners
        self.command = Command("GROUP.LIST.>", self._answer)

    def _answer(self, call: Call) -> ListGroupsReply:
        request = read(ListGroupsRequest, call.payload)
        check_address(call.tail)
        mailbox = self._owners.check(call, call.tail, request.token)
        groups = sorted(mailbox.groups, key=_name)
        first = 0 if request.after is None else bisect_right(groups, request.after, key=_name)
        found: list[Group] = []
        size = 0
        for group in groups[first : first + (request.limit or _LIMIT)]:
            entry = Group(name=group.name, pending=group.outstanding)
            size += len(entry.model_dump_json())
            if found and size > _MAX_REPLY_BYTES:
                break
            found.append(entry)
        more = first + len(found) < len(groups)
        return ListGroupsReply(groups=tuple(found), more=more or None)


class RemoveGroupRequest(OwnerRequest):
    """Who asks, and which group."""

    group_name: str | None = None


class RemoveGroupReply(Reply):
    """Whether the group is gone by this request."""

    removed: bool = False


class RemoveGroup:
    """Carries out GROUP.REMOVE."""

    def __init__(self, store: Store, owners: Owners) -> None:
        self._store = store
        self._owners = owners
        self.command = Command("GROUP.REMOVE.>", self._answer)

    def _answer(self, call: Call) -> RemoveGroupReply:
        request = read(RemoveGroupRequest, call.payload)
        check_address(call.tail)
        if request.group_name is None:
            raise Refusal("group_name is missing: the group to remove")
        length = len(request.group_name.encode(errors="replace"))
        if not 1 <= length <= _MAX_NAME:
            raise Refusal(f"invalid group_name: it must have 1 to {_MAX_NAME} bytes, not {length}")
        self._owners.check(call, call.tail, request.token)
        self._store.remove_group(call.tail, request.group_name)
        return RemoveGroupReply(removed=True)
