"""Requests and replies of the REST interface, as its OpenAPI document has them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Queue(BaseModel):
    """A mailbox, or a stream, in a list."""

    name: str
    kind: Literal["mailbox", "stream"] = "mailbox"
    depth: int
    in_flight: int
    delayed: int
    consumers: int
    oldest_s: float | None
    bytes: int
    rate_in: float
    rate_out: float
    lag: int
    outlook: str
    outlook_s: float | None
    levels: dict[int, int]


class Queues(BaseModel):
    """A part of all queues."""

    queues: list[Queue]
    total: int


class Consumer(BaseModel):
    """A group that reads a mailbox, or a consumer of a stream."""

    name: str
    queue: str
    kind: Literal["mailbox", "stream"] = "mailbox"
    """What the queue is."""
    pending: int
    ack_pending: int
    redelivered: int
    lag: int
    lag_s: float | None
    members: int
    ack_rate: float
    delivered: int
    acked: int
    dead: int
    used_s: float
    p95_s: float | None


class Consumers(BaseModel):
    """A part of all groups."""

    consumers: list[Consumer]
    total: int


class QueueDetails(Queue):
    """All that is known of a queue."""

    desc: str
    created: int
    expires: int
    next_id: int
    lanes: dict[int, int]
    policy: dict[str, Any]
    groups: list[Consumer]
    subjects: list[str] = []
    """Of a stream: which it stores, as far as the one who asks may know."""
    declared: bool = False
    """Whether the broker's configuration has it, so that it comes back."""
    declared_consumers: list[str] = []


class Messages(BaseModel):
    """Messages as FETCH shows them; nothing is taken.

    With `preview`, each has the size of its payload as `bytes`, and `cut` if there is more of it.
    """

    messages: list[dict[str, Any]]
    more: bool = False
    """Whether there was no room for all that were asked for."""


class Letter(BaseModel):
    """A dead letter."""

    id: str
    original_id: str
    subject: str
    group: str
    payload: str | None = None
    encoding: str | None = None
    headers: dict[str, list[str]] | None = None
    priority: str = ""
    bytes: int = 0
    cut: bool = False
    """Whether there is more of the payload than this."""
    error: str
    detail: str = ""
    """What the worker said that gave it up, of a stream's."""
    attempts: int
    first_seen: int
    last_failed: int
    resolved: bool
    resolved_at: int | None = None
    by: str | None = None
    how: str | None = None


class Letters(BaseModel):
    """A part of all dead letters."""

    dead_letters: list[Letter]
    total: int


class Reason(BaseModel):
    """Dead letters of one queue that died for one reason."""

    reason: str
    queue: str
    count: int
    newest: int


class Reasons(BaseModel):
    """Dead letters by reason."""

    reasons: list[Reason]
    total: int
    unlisted: int = 0
    """Of these, letters that no list has: older than the newest 100,000, or not read yet."""


class Input(BaseModel):
    """The body of a request: no other fields than these."""

    model_config = ConfigDict(extra="forbid", strict=True)


HeaderValue = Annotated[str, Field(max_length=4096)]


class Credentials(Input):
    """An operator of the broker."""

    user: str = Field(min_length=1, max_length=255)
    password: str = Field(max_length=1024)


class Session(BaseModel):
    """Who is signed in, and what they may do."""

    user: str
    role: Literal["none", "look", "steer"]
    csrf: str
    anonymous: bool
    version: str


class Expected(Input):
    """What the one who asks has seen; if it is not so any more, nothing happens."""

    expected: int | None = Field(default=None, ge=0)


class Purged(BaseModel):
    """How many messages are gone."""

    purged: int


class Removed(BaseModel):
    """Whether something is gone."""

    removed: bool


class NewMessage(Input):
    """A message to send: to a mailbox, or with a subject to a stream."""

    subject: str = Field(default="", max_length=255, pattern=r"^[^\s*>]*$")
    headers: dict[str, HeaderValue] = Field(default_factory=dict, max_length=100)
    """Such as `Nats-Msg-Id`, by which a stream knows what was sent twice."""
    payload: str = Field(max_length=1_000_000)
    encoding: Literal["base64"] | None = None
    priority: str = Field(default="normal", max_length=20)
    key: str = Field(default="", max_length=1024)
    tags: list[str] = Field(default_factory=list, max_length=100)
    delay_s: int = Field(default=0, ge=0, le=3_162_240_000)
    ttl_s: int = Field(default=0, ge=0, le=3_162_240_000)


class Sent(BaseModel):
    """The number of a message; -1 for a delayed one."""

    msg_id: int
    duplicate: bool = False
    """Whether a stream had it already, by its `Nats-Msg-Id`."""


class ReplayFilter(Input):
    """Which dead letters to send back; without fields, all."""

    queue: str = Field(default="", max_length=255)
    reason: str = Field(default="", max_length=255)
    limit: int | None = Field(default=None, ge=1, le=100_000)
    expected: int | None = Field(default=None, ge=0)
    wait: bool = True
    """Whether the answer waits for the end; without it, look at the job."""


class PurgeFilter(Input):
    """Which dead letters are to go; without fields, all."""

    queue: str = Field(default="", max_length=255)
    reason: str = Field(default="", max_length=255)
    expected: int | None = Field(default=None, ge=0)
    wait: bool = True
    """Whether the answer waits for the end; without it, look at the job."""


class Replayed(BaseModel):
    """How many were sent back, or purged."""

    action: Literal["replay", "purge"] = "replay"
    replayed: int = 0
    purged: int = 0
    failed: int = 0
    error: str = ""
    job: int | None = None
    done: bool = True
    total: int = 1


class LetterChange(Input):
    """What to change of a dead letter."""

    resolved: Literal[True]


class AgentStatus(BaseModel):
    """Whether an agent is there, and when it was last heard of."""

    registered: int
    last_seen: int
    alive: bool
    report: dict[str, Any] | None = None


class Agents(BaseModel):
    """Agents that match, best first; what is known of each is in the same place of its list."""

    agents: list[dict[str, Any]]
    statuses: list[AgentStatus]
    scores: list[float] | None = None
    """How well each matches the question; none without one."""
    total: int


class ScheduleRow(BaseModel):
    """A schedule and how far it has come."""

    name: str
    cron: str
    timezone: str
    target: str
    due: int | None
    fired: int | None
    late: bool
    problem: str


class Schedules(BaseModel):
    """What is sent at set times."""

    schedules: list[ScheduleRow]
    total: int


class Connections(BaseModel):
    """Clients of the broker."""

    connections: list[dict[str, Any]]
    total: int


class Attention(BaseModel):
    """Something an operator should look at."""

    kind: str
    status: Literal["broken", "attention"]
    text: str
    count: int
    since: float | None
    link: dict[str, str] | None


class State(BaseModel):
    """Whether the broker answers, and how much there is."""

    now: float
    broker: dict[str, Any]
    counts: dict[str, int]


class Overview(BaseModel):
    """How the broker is, and what needs attention."""

    now: float
    broker: dict[str, Any]
    attention: list[Attention]
    numbers: dict[str, float | int | None]
    levels: dict[int, int]
    series: list[dict[str, Any]]
    behind: list[Queue]
    counts: dict[str, int]


class AuditLines(BaseModel):
    """What somebody changed, newest first."""

    lines: list[dict[str, Any]]
