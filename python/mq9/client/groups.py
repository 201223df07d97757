"""The part of `mq9.Client` that is about the groups of a mailbox, for its owner."""

from dataclasses import dataclass

from mq9.client.mailboxes import checked_address
from mq9.client.wire import Wire


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group, and how many messages it was given and has not acknowledged."""

    name: str
    pending: int


class GroupMethods:
    """What `mq9.Client` inherits."""

    timeout: float
    _wire: Wire

    async def groups(
        self, address: str, *, token: str | None = None, timeout: float | None = None
    ) -> list[GroupSummary]:
        """List the groups of a mailbox by name. Operators need no `token`."""
        subject = f"$mq9.AI.GROUP.LIST.{checked_address(address)}"
        given = self.timeout if timeout is None else timeout
        found: list[GroupSummary] = []
        more = True
        while more:
            after = found[-1].name if found else None
            body = {"token": token, "limit": 1000, "after": after}
            answer = await self._wire.ask(subject, body, timeout=given)
            found += (GroupSummary(each["name"], each["pending"]) for each in answer["groups"])
            more = answer.get("more", False)
        return found

    async def remove_group(
        self,
        address: str,
        group: str,
        *,
        token: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Remove a group with its position; messages stay. Operators need no `token`."""
        subject = f"$mq9.AI.GROUP.REMOVE.{checked_address(address)}"
        body = {"group_name": group, "token": token}
        given = self.timeout if timeout is None else timeout
        await self._wire.ask(subject, body, timeout=given)
