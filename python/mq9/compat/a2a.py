"""`Mq9A2AAgent`: A2A tasks over mailboxes, as in `mq9.a2a` of the original. Needs the extra `a2a`.

Owns its methods, its headers, and which task a message belongs to. Tasks and events are those of
the package a2a-sdk; what is stored of them is `task_store`'s.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, Unpack, overload

from a2a.helpers import new_message
from a2a.server.agent_execution import RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import Event, EventQueue
from a2a.server.tasks import TaskManager
from a2a.types.a2a_pb2 import (
    AgentCard,
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    Part,
    SendMessageRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from a2a.types.a2a_pb2 import Message as A2AMessage
from google.protobuf import json_format

from mq9.client import Client, Message
from mq9.client.connecting import Options
from mq9.client.consumer import Consumer
from mq9.client.fetching import Deliver
from mq9.client.tasks import end_tasks
from mq9.compat.task_store import MailboxTaskStore, as_json, read
from mq9.errors import InvalidField, InvalidRequest, Mq9Error

__all__ = ["Mq9A2AAgent"]

METHOD = "mq9-a2a-method"
"""What is asked for; without it a message is a SendMessageRequest."""
REPLY_TO = "mq9-reply-to"
TYPE = "mq9-a2a-type"
"""The name of the event in an answer."""
LAST = "mq9-a2a-last"
"""`true` on the last event of a task."""

_REPORT_S = 30.0
_LEFTOVER_S = 60
_ENDED = frozenset(
    {
        TaskState.TASK_STATE_COMPLETED,
        TaskState.TASK_STATE_FAILED,
        TaskState.TASK_STATE_CANCELED,
        TaskState.TASK_STATE_REJECTED,
    }
)

Handler = Callable[[RequestContext, EventQueue], Awaitable[None]]
Answer = TypeVar("Answer", Task, ListTasksResponse)

_log = logging.getLogger("mq9.client")


class Mq9A2AAgent:
    """An agent that is given tasks and gives tasks to others; further options are the client's."""

    def __init__(
        self,
        *,
        server: str | None = None,
        mailbox_ttl: int = 0,
        request_timeout: float = 60.0,
        **options: Unpack[Options],
    ) -> None:
        self._client = Client(server, **options)
        self._mailbox_ttl = mailbox_ttl
        self._patience_s = request_timeout
        self._handler: Handler | None = None
        self._mailbox: str | None = None
        self._group: str | None = None
        self._deliver: Deliver = "earliest"
        self._consumer: Consumer | None = None
        self._working: asyncio.Task[None] | None = None
        self._reporting: asyncio.Task[None] | None = None

    @property
    def client(self) -> Client:
        """The client underneath."""
        return self._client

    @overload
    def on_message(self, handler: Handler, /) -> Handler: ...
    @overload
    def on_message(
        self,
        handler: None = None,
        /,
        *,
        group_name: str | None = None,
        deliver: Deliver = "earliest",
        num_msgs: int = 10,
        max_wait_ms: int = 500,
    ) -> Callable[[Handler], Handler]: ...
    def on_message(
        self,
        handler: Handler | None = None,
        /,
        *,
        group_name: str | None = None,
        deliver: Deliver = "earliest",
        num_msgs: int = 10,  # noqa: ARG002
        max_wait_ms: int = 500,  # noqa: ARG002
    ) -> Handler | Callable[[Handler], Handler]:
        """Decorates the function that works on messages, one at a time.

        It is given tasks, and what other agents tell of tasks that they were given. `num_msgs` and
        `max_wait_ms` are ignored: it is given a message as soon as there is one.
        """

        def decorate(handler: Handler) -> Handler:
            self._handler, self._group, self._deliver = handler, group_name, deliver
            return handler

        return decorate if handler is None else decorate(handler)

    async def connect(self) -> None:
        """Connect."""
        await self._client.connect()

    async def close(self) -> None:
        """Finish the message that is worked on, and close the connection."""
        if self._reporting is not None:
            await end_tasks(self._reporting)
        if self._consumer is not None and self._working is not None:
            await self._consumer.stop()
            await asyncio.wait([self._working])
        await self._client.close()

    async def create_mailbox(self, name: str, *, ttl: int | None = None) -> str:
        """Create the agent's mailbox, if it is missing, and work on what comes there."""
        ttl = self._mailbox_ttl if ttl is None else ttl
        box = await self._client.create_mailbox(name, ttl=ttl, exist_ok=True)
        kept = await self._client.create_mailbox(f"{name}.tasks", ttl=ttl, exist_ok=True)
        self._mailbox, tasks = box, MailboxTaskStore(self._client, kept)
        group = self._group or f"{name}.workers"
        self._consumer = self._client.consume(box, group=group, deliver=self._deliver)
        self._working = asyncio.create_task(self._work(self._consumer, tasks))
        return box

    async def register(self, agent_card: AgentCard) -> str:
        """Let others find the agent; without a mailbox it gets one of the card's name."""
        box = self._mailbox or await self.create_mailbox(agent_card.name)
        card = {"name": agent_card.name, "mailbox": box, "payload": agent_card.description}
        shown = json_format.MessageToDict(agent_card)
        await self._client.register({**card, "agent_card": shown})
        self._reporting = asyncio.create_task(self._report(agent_card.name, box))
        return box

    async def unregister(self) -> None:
        """Take the agent out of the registry; it goes on working until `close`."""
        if self._reporting is not None:
            await end_tasks(self._reporting)
        if self._mailbox is not None:
            await self._client.unregister(self._mailbox)

    async def discover(
        self, query: str | None = None, *, semantic: bool = True, limit: int = 10
    ) -> list[dict[str, Any]]:
        """Find agents by meaning or by words; all of them without a query."""
        if semantic and query is not None:
            return list(await self._client.discover(semantic=query, limit=limit))
        return list(await self._client.discover(query, limit=limit))

    async def send_message(
        self,
        mail_address: str | Mapping[str, Any],
        request: SendMessageRequest,
        *,
        reply_to: str | None = None,
    ) -> int:
        """Give another agent a message and return its id; events of the task go to `reply_to`."""
        headers = {} if reply_to is None else {REPLY_TO: reply_to}
        sent = await self._client.send(_address(mail_address), as_json(request), headers=headers)
        return -1 if sent is None else sent

    async def get_task(self, mail_address: str | Mapping[str, Any], task_id: str) -> Task | None:
        """A task of another agent; None if it has no such task or does not answer."""
        found = await self._ask(mail_address, "GetTask", GetTaskRequest(id=task_id), Task())
        return found if found is not None and found.id else None

    async def list_tasks(
        self, mail_address: str | Mapping[str, Any], *, page_size: int = 100
    ) -> list[Task]:
        """The newest tasks of another agent; none if it does not answer."""
        request = ListTasksRequest(page_size=page_size)
        found = await self._ask(mail_address, "ListTasks", request, ListTasksResponse())
        return [] if found is None else list(found.tasks)

    async def cancel_task(self, mail_address: str | Mapping[str, Any], task_id: str) -> Task | None:
        """Cancel a task of another agent that has not ended; the task as it is then."""
        found = await self._ask(mail_address, "CancelTask", CancelTaskRequest(id=task_id), Task())
        return found if found is not None and found.id else None

    async def _ask(
        self,
        mail_address: str | Mapping[str, Any],
        method: str,
        request: GetTaskRequest | ListTasksRequest | CancelTaskRequest,
        into: Answer,
    ) -> Answer | None:
        box = await self._client.create_mailbox(ttl=int(self._patience_s) + _LEFTOVER_S)
        try:
            headers = {METHOD: method, REPLY_TO: box}
            await self._client.send(_address(mail_address), as_json(request), headers=headers)
            given = await self._client.fetch(
                box, deliver="earliest", max_msgs=1, max_wait=self._patience_s
            )
            return read(given[0].payload, into) if given else None
        finally:
            with contextlib.suppress(Mq9Error):
                await self._client.remove_mailbox(box)

    async def _report(self, name: str, box: str) -> None:
        while True:
            await asyncio.sleep(_REPORT_S)
            try:
                await self._client.report({"name": name, "mailbox": box, "report_info": "running"})
            except Mq9Error as error:
                _log.warning("the agent %s cannot report: %s", name, error)

    async def _work(self, consumer: Consumer, tasks: MailboxTaskStore) -> None:
        async def handle(message: Message) -> None:
            try:
                await self._handle(message, tasks)
            except (json_format.ParseError, InvalidField, InvalidRequest) as error:
                # It would be no better another time.
                _log.error("message %d of %s is not A2A: %s", message.msg_id, box, error)

        box = consumer.address
        try:
            await consumer.run(handle)
        except Exception:
            # Nobody waits for this task who could be told.
            _log.exception("the agent %s has ended", box)

    async def _handle(self, message: Message, tasks: MailboxTaskStore) -> None:
        reply_to = message.headers.get(REPLY_TO)
        context = ServerCallContext()
        if TYPE in message.headers:
            await self._hear(message)
            return
        match message.headers.get(METHOD, "SendMessage"):
            case "GetTask":
                wanted = read(message.payload, GetTaskRequest())
                await self._tell(reply_to, await tasks.get(wanted.id, context) or Task())
            case "ListTasks":
                listed = await tasks.list(read(message.payload, ListTasksRequest()), context)
                await self._tell(reply_to, listed)
            case "CancelTask":
                unwanted = read(message.payload, CancelTaskRequest())
                task = await tasks.get(unwanted.id, context) or Task()
                if task.id and task.status.state not in _ENDED:
                    task.status.CopyFrom(TaskStatus(state=TaskState.TASK_STATE_CANCELED))
                    await tasks.save(task, context)
                await self._tell(reply_to, task)
            case "SendMessage":
                await self._carry_out(read(message.payload, SendMessageRequest()), reply_to, tasks)
            case other:
                _log.error("message %d asks for %r, which is unknown", message.msg_id, other)

    async def _hear(self, message: Message) -> None:
        """Has the handler hear what another agent tells of a task, as a message with its id."""
        told = _told(message.headers[TYPE], message.payload)
        if self._handler is None or told is None:
            return
        call, request = ServerCallContext(), SendMessageRequest(message=told)
        context = RequestContext(call, request, told.task_id or None, told.context_id or None)
        try:
            await self._handler(context, _Unheard())
        except Exception:
            _log.exception("the handler of %s failed", self._mailbox)

    async def _carry_out(
        self, request: SendMessageRequest, reply_to: str | None, tasks: MailboxTaskStore
    ) -> None:
        """Has the handler work on a message; a handler that raises has failed with its task."""
        if self._handler is None:
            _log.warning("%s has no handler: a message is dropped", self._mailbox)
            return
        call = ServerCallContext()
        task_id = request.message.task_id or None
        task = None if task_id is None else await tasks.get(task_id, call)
        if task is not None:
            request.message.context_id = task.context_id
        context = RequestContext(call, request, task_id, request.message.context_id or None, task)
        manager = TaskManager(
            task_store=tasks,
            context=call,
            task_id=context.task_id,
            context_id=context.context_id,
            initial_message=context.message,
        )
        last = TaskStatusUpdateEvent(task_id=context.task_id, context_id=context.context_id)
        try:
            await self._handler(context, _Events(manager, partial(self._tell, reply_to)))
            done = await manager.get_task()
            if done is not None:
                last.status.CopyFrom(done.status)
        except Exception:
            _log.exception("the handler of %s failed", self._mailbox)
            last.status.state = TaskState.TASK_STATE_FAILED
            await manager.process(last)
        await self._tell(reply_to, last, last=True)

    async def _tell(
        self, reply_to: str | None, what: Event | ListTasksResponse, *, last: bool = False
    ) -> None:
        """Sends an answer; nobody waits for it where the mailbox is gone."""
        if reply_to is None:
            return
        headers = {TYPE: type(what).__name__} | ({LAST: "true"} if last else {})
        try:
            await self._client.send(reply_to, as_json(what), headers=headers)
        except Mq9Error as error:
            _log.warning("%s cannot be answered: %s", reply_to, error)


class _Events(EventQueue):
    """What a handler tells of its task: kept, and handed on to who asked for it."""

    def __init__(self, manager: TaskManager, tell: Callable[[Event], Awaitable[None]]) -> None:
        self._manager = manager
        self._tell = tell

    async def enqueue_event(self, event: Event) -> None:
        """Keeps an event before anybody hears of it."""
        await self._manager.process(event)
        await self._tell(event)


class _Unheard(EventQueue):
    """Where nobody waits for events."""

    async def enqueue_event(self, event: Event) -> None:
        """Drops an event."""


def _told(kind: str, payload: bytes) -> A2AMessage | None:
    """What an event says of a task, as a message; None if that is only its state."""
    parts: Sequence[Part] = ()
    if kind == "TaskArtifactUpdateEvent":
        event = read(payload, TaskArtifactUpdateEvent())
        task_id, context_id, parts = event.task_id, event.context_id, event.artifact.parts
    elif kind == "TaskStatusUpdateEvent":
        status = read(payload, TaskStatusUpdateEvent())
        task_id, context_id = status.task_id, status.context_id
        parts = status.status.message.parts
    elif kind == "Message":
        return read(payload, A2AMessage())
    if not parts:
        return None
    return new_message(list(parts), context_id=context_id, task_id=task_id)


def _address(agent: str | Mapping[str, Any]) -> str:
    """The mailbox of an agent that was found, or the address itself."""
    return agent if isinstance(agent, str) else str(agent["mailbox"])
