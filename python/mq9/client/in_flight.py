"""The messages that a consumer was given and has not settled, each under a name.

A member that fetches again is given again what it holds. So a consumer that fetches while it
works does so under another of its names, one that holds nothing.
"""

import heapq
from collections import Counter
from dataclasses import dataclass

from mq9.client.message import Message


@dataclass(slots=True)
class _Held:
    message: Message
    member: str
    done: bool = False


class InFlight:
    """The messages of one consumer; not for several threads."""

    def __init__(self, member: str, concurrency: int, prefetch: int) -> None:
        self.capacity = concurrency + prefetch
        # Each message being worked on or acknowledged may be the last that its name holds: one more
        # is free.
        self.members = tuple(f"{member}.{number}" for number in range(2 * self.capacity + 1))
        self._held: dict[int, _Held] = {}
        self._done = 0
        self._per_member: Counter[str] = Counter()
        self._queue: list[tuple[int, int]] = []

    @property
    def room(self) -> int:
        """How many more it should take: what is done makes room before that is confirmed."""
        if all(self._per_member[name] for name in self.members):
            return 0
        return max(0, self.capacity - (len(self._held) - self._done))

    @property
    def queued(self) -> int:
        """How many nobody works on yet."""
        return len(self._queue)

    @property
    def msg_ids(self) -> list[int]:
        """All that is held."""
        return list(self._held)

    def __contains__(self, message: Message) -> bool:
        return message.msg_id in self._held

    def free_member(self) -> str:
        """A name that holds nothing."""
        return next(name for name in self.members if not self._per_member[name])

    def take(self, message: Message, member: str) -> None:
        """A message was delivered; one that is in hand already has only changed its name."""
        if held := self._held.get(message.msg_id):
            self._per_member[held.member] -= 1
            held.member = member
        else:
            self._held[message.msg_id] = _Held(message, member)
            heapq.heappush(self._queue, (message.level, message.msg_id))
        self._per_member[member] += 1

    def next(self) -> Message | None:
        """The most important message that nobody works on; it stays in hand."""
        if not self._queue:
            return None
        _, msg_id = heapq.heappop(self._queue)
        return self._held[msg_id].message

    def finish(self, msg_id: int) -> None:
        """A message is done; it is held until the broker knows."""
        if (held := self._held.get(msg_id)) and not held.done:
            held.done = True
            self._done += 1

    def settle(self, msg_id: int) -> None:
        """A message is no longer held."""
        if held := self._held.pop(msg_id, None):
            self._per_member[held.member] -= 1
            self._done -= held.done

    def drop_queued(self) -> list[int]:
        """Empties the queue; what was in it is still held."""
        dropped = [msg_id for _, msg_id in self._queue]
        self._queue.clear()
        return dropped
