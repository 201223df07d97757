"""Tasks in the queues of a JetStream stream: publish them, and work on them.

A small client for the envelope `hanzo.mq.v1`, over nats-py. A handler that returns has acknowledged
its task; one that raises gets it again, later each time. All of it works on any server that speaks
JetStream, but for what mq9 adds there: delays that the broker keeps, the end of a task's life, and
dead letters.
"""

import asyncio
import json
import logging
import math
import os
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

import nats.errors
import nats.js.errors
from nats.aio.client import Client as Nats
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, PubAck
from nats.js.client import JetStreamContext

from mq9.client.handlers import call, threads_for
from mq9.client.tasks import end_tasks
from mq9.errors import BrokerUnavailable, ClientClosed, InvalidField, Mq9Error, RequestTimeout

__all__ = ["DeadLetter", "MQClient", "NoQueue", "Task", "TaskRefused"]

SCHEMA = "hanzo.mq.v1"
REPLY_TO = "Hanzo-Reply-To"
_DUE = "mq9-due-time"
"""What mq9 writes into a task that it has kept until its time."""

_log = logging.getLogger("mq9.queues")

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_POLL_S = 5.0
_PAUSE_S = 1.0
_LEAST_BEAT_S = 0.2
_TURNS = 20
_CONSUMER_EXISTS = 10148
_INBOX = "_INBOX"
_WORDS = re.compile(r"[^\s.*>]+(\.[^\s.*>]+)*")

Handler = TypeVar("Handler", bound=Callable[["Task"], object])


class NoQueue(Mq9Error):  # noqa: N818
    """No stream has the subject, so nothing stores what is published to it."""


class TaskRefused(Mq9Error):  # noqa: N818
    """The stream does not take the task, and says why."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Why a task was given up, and where it was."""

    reason: str
    """`max_deliver` or `terminated`."""
    error: str
    """What was said when it was terminated."""
    attempts: int
    subject: str
    """Where it was published."""
    stream: str
    sequence: int
    group: str
    """Whose task it was."""
    first_seen: str
    last_failed: str

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> Self | None:
        """What the headers of a message say; None if it is no dead letter."""
        if "mq9-dead-subject" not in headers:
            return None

        def said(name: str) -> str:
            return headers.get(f"mq9-dead-{name}", "")

        return cls(
            reason=said("reason"),
            error=said("error"),
            attempts=int(said("deliveries") or 0),
            subject=said("subject"),
            stream=said("stream"),
            sequence=int(said("sequence") or 0),
            group=said("consumer"),
            first_seen=said("first-time"),
            last_failed=said("last-time"),
        )


@dataclass(frozen=True, slots=True)
class Task:
    """A task, and what its envelope says."""

    subject: str
    id: str
    type: str
    data: Any
    envelope: Mapping[str, Any] = field(repr=False)
    delivery: int = 1
    """How often it was delivered, this time included."""
    dead: DeadLetter | None = None
    """Why it was given up; None for one that was not."""
    message: Msg | None = field(default=None, repr=False)

    async def respond(self, data: object) -> bool:
        """Answers whoever waits for it in `MQClient.request`; False if nobody asked.

        An answer goes to inboxes only: those of NATS, and those of this client's `inbox_prefix`.
        """
        message = self.message
        inbox = (message.headers or {}).get(REPLY_TO) if message is not None else None
        if message is None or not inbox:
            return False
        own = bytes(message._client._inbox_prefix).decode()
        if not inbox.startswith((f"{_INBOX}.", f"{own}.")) or not _WORDS.fullmatch(inbox):
            _log.warning("%s: %s is no inbox, so it gets no answer", self.subject, inbox)
            return False
        await message._client.publish(inbox, json.dumps(data).encode())
        return True

    @classmethod
    def of(cls, message: Msg) -> Self:
        """The task in a message; ValueError if it has no envelope."""
        envelope = json.loads(message.data)
        if not isinstance(envelope, dict) or envelope.get("schema") != SCHEMA:
            raise ValueError(f"this is no envelope of {SCHEMA}")
        return cls(
            subject=message.subject,
            id=str(envelope.get("id", "")),
            type=str(envelope.get("type", "")),
            data=envelope.get("data"),
            envelope=envelope,
            delivery=message.metadata.num_delivered or 1,
            dead=DeadLetter.of(message.headers or {}),
            message=message,
        )


@dataclass(slots=True)
class _Work:
    subject: str
    group: str
    handler: Callable[[Task], object]
    concurrency: int
    wanted: ConsumerConfig
    """The consumer, where it has to be made."""

    def delay(self, delivery: int, delays: Sequence[float]) -> float:
        """How long after a failure of this delivery the next one may come."""
        return delays[min(delivery, len(delays)) - 1] if delays else 0.0


@dataclass(slots=True)
class _Source:
    """Where the tasks of a group come from."""

    pull: JetStreamContext.PullSubscription
    beat_s: float
    backoff: Sequence[float]
    """How the consumer itself spaces deliveries."""


class MQClient:
    """Publishes tasks, and calls handlers with those that are waiting.

    Use it with `async with`. `subscribe` says what handles which subject, `run` works until `stop`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        user: str | None = None,
        password: str | None = None,
        source: str = "mq9",
        timeout: float = 10.0,
        retry_delays: tuple[float, ...] = (1.0, 5.0, 30.0, 120.0),
        **options: Any,  # noqa: ANN401
    ) -> None:
        """Without `url` it is MQ9_URL, or a server on this machine.

        `source` names this program in envelopes; `options` are those of `nats.connect`.
        """
        self._url = url or os.environ.get("MQ9_URL") or "nats://127.0.0.1:4222"
        self._options = {"user": user, "password": password, "name": source} | options
        self._source = source
        self._timeout = timeout
        self._retry_delays = retry_delays
        self._nats: Nats | None = None
        self._work: list[_Work] = []
        self._stopping = asyncio.Event()
        self._refused: InvalidField | None = None

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        """Connects; every method but `subscribe` does so by itself."""
        if self._nats is not None:
            return
        connection = Nats()
        try:
            async with asyncio.timeout(self._timeout):
                await connection.connect(self._url, **self._options)
        except (nats.errors.Error, OSError, TimeoutError) as error:
            await connection.close()
            raise BrokerUnavailable(f"cannot connect to {self._url}: {_words(error)}") from error
        self._nats = connection

    async def close(self) -> None:
        """Lets handlers finish and disconnects."""
        self.stop()
        connection, self._nats = self._nats, None
        if connection is not None:
            await connection.close()

    async def publish(
        self,
        subject: str,
        task: Mapping[str, Any],
        *,
        delay: float | timedelta | None = None,
        priority: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> PubAck:
        """Stores a task; it is durable when this returns.

        `task` is an envelope, or the part of one that matters: what is missing is filled in. The
        task is stored once, however often one with its `id` is published within the stream's
        `duplicate_window`. With `delay`, or `delay_until` in the envelope, it is handled no sooner:
        mq9 keeps it until then, and its answer has the number 0. Streams with priorities give the
        task of the lowest `priority` first, from 1 to 10.
        """
        envelope = self._envelope(task) | ({} if priority is None else {"priority": priority})
        if delay is not None:
            envelope["delay_until"] = _after(delay)
        elif isinstance(envelope.get("delay_until"), datetime):
            envelope["delay_until"] = _written(envelope["delay_until"])
        said = {"Nats-Msg-Id": str(envelope["id"])} | _meant(envelope) | dict(headers or {})
        return await self._store(subject, json.dumps(envelope).encode(), said)

    async def replay(self, task: Task) -> PubAck:
        """Gives a dead letter back to the queue it was in, as often as this is called once."""
        dead, message = task.dead, task.message
        if dead is None or message is None:
            raise InvalidField(f"task {task.id} is no dead letter: it has not been given up")
        name = f"replay-{dead.stream}-{dead.sequence}-{dead.group}"
        said = {"Nats-Msg-Id": name} | _priority(task.envelope)
        return await self._store(dead.subject, message.data, said)

    async def _store(self, subject: str, payload: bytes, said: dict[str, str]) -> PubAck:
        stream = await self._stream()
        try:
            return await stream.publish(subject, payload, timeout=self._timeout, headers=said)
        except nats.js.errors.NoStreamResponseError:
            raise NoQueue(f"no stream has the subject {subject}: create one first") from None
        except nats.js.errors.ServiceUnavailableError as error:
            raise BrokerUnavailable(f"the task was not stored: {error.description}") from error
        except nats.js.errors.APIError as error:
            raise TaskRefused(f"{subject} does not take it: {error.description}") from None
        except (nats.errors.Error, OSError, TimeoutError) as error:
            raise BrokerUnavailable(f"the task may be stored or not: {error}") from error

    async def request(
        self, subject: str, task: Mapping[str, Any], *, wait: float | None = None
    ) -> Any:  # noqa: ANN401
        """Stores a task and waits for what its handler says with `Task.respond`, `wait` seconds."""
        connection = await self._connected()
        inbox = connection.new_inbox()
        answers = await connection.subscribe(inbox, max_msgs=1)
        try:
            await self.publish(subject, task, headers={REPLY_TO: inbox})
            answer = await answers.next_msg(timeout=self._timeout if wait is None else wait)
        except nats.errors.TimeoutError:
            raise RequestTimeout(
                f"nobody answered to {subject} in time; the task is stored all the same"
            ) from None
        finally:
            await answers.unsubscribe()
        return json.loads(answer.data)

    def subscribe(
        self,
        subject: str,
        *,
        group: str,
        concurrency: int = 1,
        ack_wait: float = 30.0,
        max_deliver: int = 5,
        dead_letters: str | None = None,
    ) -> Callable[[Handler], Handler]:
        """Says which function handles a subject; members of a `group` share its tasks.

        The group is a durable consumer of the stream. Where it is not there yet it is made, with
        `ack_wait` seconds to acknowledge, `max_deliver` deliveries, and `dead_letters` in front of
        the subject under which a task is kept that is given up. Where it is there, it must take
        just this subject: otherwise `run` ends with InvalidField. A handler that is no `async def`
        runs in a thread.
        """
        if not group or any(each in group for each in ".*> \t\r\n/\\"):
            raise InvalidField(f"group is {group!r}: it must be a name such as embedding-workers")
        if concurrency < 1:
            raise InvalidField(f"concurrency is {concurrency}: it must be at least 1")

        wanted = ConsumerConfig(
            durable_name=group,
            ack_policy=AckPolicy.EXPLICIT,
            filter_subject=subject,
            ack_wait=ack_wait,
            max_deliver=max_deliver,
            metadata={"mq9.dead_letter_prefix": dead_letters} if dead_letters else None,
        )

        def decorate(handler: Handler) -> Handler:
            self._work.append(_Work(subject, group, handler, concurrency, wanted))
            return handler

        return decorate

    async def run(self) -> None:
        """Works until `stop` is called; tasks under way are finished first."""
        if not self._work:
            raise InvalidField("nothing to do: decorate a handler with subscribe(...)")
        self._stopping.clear()
        self._refused = None
        async with asyncio.TaskGroup() as tasks:
            for work in self._work:
                tasks.create_task(self._follow(work))
        if self._refused is not None:
            raise self._refused

    def stop(self) -> None:
        """Take no more tasks."""
        self._stopping.set()

    async def _connected(self) -> Nats:
        await self.connect()
        if self._nats is None:
            raise ClientClosed("the client was closed")
        return self._nats

    async def _stream(self) -> JetStreamContext:
        return (await self._connected()).jetstream(timeout=self._timeout)

    def _envelope(self, task: Mapping[str, Any]) -> dict[str, Any]:
        given = dict(task)
        if "data" not in given:
            raise InvalidField("data is missing: what the task is about")
        now = _written(datetime.now(UTC))
        return {
            "schema": SCHEMA,
            "id": f"task_{new_ulid()}",
            "type": "task",
            "source": self._source,
            "timestamp": now,
            "priority": 5,
        } | given

    async def _follow(self, work: _Work) -> None:
        threads = threads_for(work.handler, work.concurrency)
        free = asyncio.Semaphore(work.concurrency)
        source: _Source | None = None
        try:
            async with asyncio.TaskGroup() as under_way:
                while not self._stopping.is_set():
                    await free.acquire()
                    try:
                        source, message = await self._next(work, source)
                    except BaseException:
                        free.release()
                        raise
                    if source is None or message is None:
                        free.release()
                        continue
                    handling = under_way.create_task(self._handle(work, message, source, threads))
                    handling.add_done_callback(lambda _: free.release())
                if source is not None:
                    # What it was given counts as delivered: it is handled, not returned.
                    for message in await _rest(source):
                        await self._handle(work, message, source, threads)
        finally:
            if threads is not None:
                threads.shutdown(wait=False, cancel_futures=True)

    async def _next(self, work: _Work, source: _Source | None) -> tuple[_Source | None, Msg | None]:
        """The next message, if one came, and where the one behind it comes from."""
        try:
            if source is None:
                source = await self._opened(work)
            messages = await self._unless_stopped(source)
        except (nats.errors.TimeoutError, TimeoutError):
            return source, None
        except InvalidField as error:
            self._refused = error
            self.stop()
            return None, None
        except (nats.errors.Error, nats.js.errors.Error, BrokerUnavailable, OSError) as error:
            _log.warning("%s: %s", work.subject, _words(error))
            if source is not None:
                with suppress(nats.errors.Error, OSError):
                    await source.pull.unsubscribe()
            await self._pause(_PAUSE_S)
            return None, None
        return source, messages[0] if messages else None

    async def _opened(self, work: _Work) -> _Source:
        stream = await self._stream()
        name = await stream.find_stream_name_by_subject(work.subject)
        config = await self._consumer(stream, name, work)
        pull = await stream.pull_subscribe_bind(work.group, name)
        beat_s = max((config.ack_wait or 30.0) / 3, _LEAST_BEAT_S)
        return _Source(pull, beat_s, config.backoff or ())

    async def _unless_stopped(self, source: _Source) -> list[Msg]:
        """What is fetched; nothing if the client is to stop before it comes."""
        fetch = asyncio.ensure_future(source.pull.fetch(1, timeout=_POLL_S))
        stop = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((fetch, stop), return_when=asyncio.FIRST_COMPLETED)
            if not fetch.done():
                await _end(source)
                # What has come goes through tasks of the fetch that need some turns of the loop.
                for _ in range(_TURNS):
                    await asyncio.sleep(0)
            return fetch.result() if fetch.done() else []
        finally:
            await end_tasks(stop, fetch)

    async def _consumer(self, stream: JetStreamContext, name: str, work: _Work) -> ConsumerConfig:
        try:
            info = await stream.consumer_info(name, work.group)
        except nats.js.errors.NotFoundError:
            await self._create_consumer(stream, name, work)
            info = await stream.consumer_info(name, work.group)
        config: ConsumerConfig | None = info.config
        assert config is not None
        taken = [config.filter_subject] if config.filter_subject else config.filter_subjects
        if not taken:
            taken = (await stream.stream_info(name)).config.subjects or []
        if taken != [work.subject]:
            raise InvalidField(
                f"group {work.group} takes the tasks of {', '.join(taken)}, not of {work.subject}:"
                " each subject needs a group of its own"
            )
        return config

    async def _create_consumer(self, stream: JetStreamContext, name: str, work: _Work) -> None:
        """Creates the consumer; one that others create meanwhile stays as it is."""
        wanted = {"stream_name": name, "config": work.wanted.as_dict(), "action": "create"}
        subject = f"{stream._prefix}.CONSUMER.DURABLE.CREATE.{name}.{work.group}"
        try:
            await stream._api_request(subject, json.dumps(wanted).encode(), timeout=self._timeout)
        except nats.js.errors.APIError as error:
            if error.err_code != _CONSUMER_EXISTS:
                raise

    async def _handle(
        self,
        work: _Work,
        message: Msg,
        source: _Source,
        threads: Any,  # noqa: ANN401
    ) -> None:
        try:
            task = Task.of(message)
        except ValueError as error:
            _log.error("%s: a message that is no task is given up: %s", work.subject, error)
            await self._settle(message.term())
            return
        if _DUE not in (message.headers or {}) and (early := _early(task)) > 0:
            await self._settle(message.nak(delay=early))
            return
        beating = asyncio.create_task(self._beat(message, source.beat_s))
        try:
            await call(work.handler, task, threads)
        except Exception:
            delay = work.delay(task.delivery, source.backoff or self._retry_delays)
            _log.exception("%s: the handler failed on task %s", work.subject, task.id)
            await self._settle(message.nak(delay=delay))
        else:
            await self._settle(message.ack())
        finally:
            beating.cancel()

    async def _beat(self, message: Msg, beat_s: float) -> None:
        """Keeps the claim on a task while its handler works."""
        while True:
            await asyncio.sleep(beat_s)
            await self._settle(message.in_progress())

    async def _settle(self, saying: Any) -> None:  # noqa: ANN401
        try:
            await saying
        except (nats.errors.Error, OSError) as error:
            _log.warning("the broker could not be told, so the task comes again: %s", error)

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return


async def _end(source: _Source) -> None:
    """Takes back what is asked for: when this is done, all has come that comes."""
    connection, inbox = source.pull._nc, source.pull._sub
    try:
        await connection._send_unsubscribe(inbox._id)
        await connection.flush()
    except (nats.errors.Error, OSError) as error:
        _log.warning("a subscription could not be ended: %s", _words(error))


async def _rest(source: _Source) -> list[Msg]:
    """What has come and was not fetched any more."""
    await _end(source)
    inbox = source.pull._sub
    came: list[Msg] = []
    with suppress(nats.errors.Error, OSError):
        while inbox.pending_msgs:
            came.append(await inbox.next_msg())
        await source.pull.unsubscribe()
    # What has no reply subject says only that nothing comes.
    return [message for message in came if message.reply]


def _written(moment: datetime) -> str:
    utc = moment.astimezone(UTC)
    return utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _after(delay: float | timedelta) -> str:
    seconds = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)
    return _written(datetime.now(UTC) + seconds)


def _meant(envelope: Mapping[str, Any]) -> dict[str, str]:
    """What of an envelope counts for the broker, in its headers."""
    asked = {"mq9-ttl": envelope.get("ttl_seconds")}
    if (delay := _until(envelope)) > 0:
        asked["mq9-delay-ms"] = math.ceil(delay * 1000)
    said = {name: str(value) for name, value in asked.items() if value is not None}
    return said | _priority(envelope)


def _priority(envelope: Mapping[str, Any]) -> dict[str, str]:
    """How urgent a task is, in a header: nothing where it is as urgent as most."""
    priority = envelope.get("priority")
    return {} if priority in (None, 5) else {"mq9-priority": str(priority)}


def _early(task: Task) -> float:
    """How many seconds before its time a task was delivered."""
    return 0.0 if task.dead is not None else _until(task.envelope)


def _until(envelope: Mapping[str, Any]) -> float:
    """How many seconds a task has to wait; not above 0 if it has not."""
    wanted = envelope.get("delay_until")
    try:
        due = datetime.fromisoformat(wanted) if isinstance(wanted, str) else None
    except ValueError:
        return 0.0
    if due is None or due.tzinfo is None:
        return 0.0
    return (due - datetime.now(UTC)).total_seconds()


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


def new_ulid() -> str:
    """An id that sorts by time."""
    number = (int(time.time() * 1000) << 80) | secrets.randbits(80)
    return "".join(_CROCKFORD[(number >> shift) & 31] for shift in range(125, -1, -5))
