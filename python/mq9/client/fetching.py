"""FETCH: its request, and the two forms in which messages come back."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from nats.aio.msg import Msg

from mq9.client.message import Message
from mq9.client.refusals import refusal
from mq9.client.wire import Wire, answer_of, compact
from mq9.errors import InvalidField

if TYPE_CHECKING:
    from collections.abc import Mapping

Deliver = Literal["latest", "earliest", "from_time", "from_id"]
Format = Literal["raw", "json"]

_ANSWERED = {"204", "404", "408"}


@dataclass(frozen=True, kw_only=True)
class Fetch:
    """What to fetch, and how; times in seconds."""

    address: str
    group: str | None = None
    member: str | None = None
    deliver: Deliver | None = None
    from_time: int | None = None
    from_id: int | None = None
    force_deliver: bool = False
    max_msgs: int = 100
    max_wait: float = 0.5
    ack_wait: float | None = None
    max_bytes: int | None = None
    min_priority: str | int | None = None
    held: bool = True
    format: Format = "raw"

    def body(self) -> bytes:
        """The request."""
        config: dict[str, Any] = {
            "num_msgs": self.max_msgs,
            "max_wait_ms": round(self.max_wait * 1000),
            "ack_wait_ms": None if self.ack_wait is None else max(1, round(self.ack_wait * 1000)),
            "max_bytes": self.max_bytes,
            "min_priority": self.min_priority,
            "held": None if self.held else False,
            "format": self.format,
        }
        deliver = self.deliver
        if deliver is None and self.from_time is not None:
            deliver = "from_time"
        if deliver is None and self.from_id is not None:
            deliver = "from_id"
        return compact(
            {
                "group_name": self.group,
                "member": self.member,
                "deliver": deliver,
                "from_time": self.from_time,
                "from_id": self.from_id,
                "force_deliver": self.force_deliver or None,
                "config": {name: value for name, value in config.items() if value is not None},
            }
        )

    async def run(self, wire: Wire, timeout: float) -> list[Message]:
        """Asks the broker; `timeout` comes on top of the wait."""
        if self.max_wait < 0 or self.max_msgs < 1:
            raise InvalidField("max_msgs must be at least 1, and max_wait not negative")
        raw = self.format == "raw"
        reply = await wire.start(
            f"$mq9.AI.MSG.FETCH.{self.address}",
            self.body(),
            timeout=timeout + self.max_wait,
            batch=raw,
        )
        messages = await reply
        return self._from_raw(messages) if raw else self._from_json(messages)

    def _from_json(self, reply: list[Msg]) -> list[Message]:
        entries: list[Mapping[str, Any]] = answer_of(reply)["messages"]
        return [Message.from_entry(self.address, self.group, entry) for entry in entries]

    def _from_raw(self, reply: list[Msg]) -> list[Message]:
        *messages, last = reply
        status = last.headers or {}
        if "Status" not in status:
            # What cannot be understood at all is refused in JSON.
            answer_of([last])
        if status.get("Status") not in _ANSWERED:
            raise refusal(str(status.get("Description", "the broker gave no reason")), status)
        return [self._message(message) for message in messages]

    def _message(self, message: Msg) -> Message:
        headers = message.headers or {}
        if message.reply:
            # $mq9.AI.MSG.RACK.<group>.<msg_id>.<address> is the broker's alone, while a sender may
            # have given the message headers named like the broker's.
            headers["mq9-msg-id"] = message.reply.split(".")[5]
        return Message.from_raw(self.address, self.group, headers, message.data)
