"""GROUP.REMOVE: a group of a mailbox with all that it remembers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mq9.commands.address import check_address
from mq9.commands.dispatcher import Call, Command
from mq9.commands.reply import Reply
from mq9.commands.request import Refusal, Request, read

if TYPE_CHECKING:
    from mq9.commands.owner import Owners
    from mq9.store import Store

# The store knows none of a longer name.
_MAX_NAME = 255


class RemoveGroupRequest(Request):
    """Which group, and who asks."""

    group_name: str | None = None
    token: str | None = None


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
