"""Tasks of an A2A agent in a mailbox: one message for each, which the next state replaces."""

from typing import TypeVar

from a2a.server.context import ServerCallContext
from a2a.server.tasks import TaskStore
from a2a.types.a2a_pb2 import ListTasksRequest, ListTasksResponse, Task
from google.protobuf import json_format
from google.protobuf.message import Message

from mq9.client import Client

_PAGE = 100

Form = TypeVar("Form", bound=Message)


def as_json(what: Message) -> bytes:
    """A message of A2A as it travels."""
    return json_format.MessageToJson(what, indent=None).encode()


def read(payload: bytes, into: Form) -> Form:
    """What travelled; fields that newer versions have are left out."""
    try:
        return json_format.Parse(payload, into, ignore_unknown_fields=True)
    except UnicodeDecodeError as error:
        raise json_format.ParseError(str(error)) from error


class MailboxTaskStore(TaskStore):
    """Finds the tasks again after a restart of the agent."""

    def __init__(self, client: Client, address: str) -> None:
        self._client = client
        self._address = address

    async def save(self, task: Task, context: ServerCallContext) -> None:  # noqa: ARG002
        """Keeps a task, in place of its earlier state."""
        await self._client.send(self._address, as_json(task), key=_key(task.id))

    async def get(self, task_id: str, context: ServerCallContext) -> Task | None:  # noqa: ARG002
        """A task, if it is there."""
        found = await self._client.query(self._address, key=_key(task_id))
        return read(found[-1].payload, Task()) if found else None

    async def list(
        self,
        params: ListTasksRequest,
        context: ServerCallContext,  # noqa: ARG002
    ) -> ListTasksResponse:
        """The tasks that changed last."""
        found = await self._client.query(self._address, limit=params.page_size or _PAGE)
        return ListTasksResponse(tasks=[read(each.payload, Task()) for each in found])

    async def delete(self, task_id: str, context: ServerCallContext) -> None:  # noqa: ARG002
        """Removes a task."""
        for found in await self._client.query(self._address, key=_key(task_id)):
            await self._client.delete(self._address, found.msg_id)


def _key(task_id: str) -> str:
    return f"task.{task_id}"
