"""Mailboxes and the registry as LangChain tools. Needs the extra `langchain`.

Owns the connection that the tools share, and their form for LangChain. What they do and say is
that of `mq9.agent_tools`.
"""

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from langchain_core.tools import BaseTool, StructuredTool, ToolException

from mq9.agent_tools import AgentTools, translated
from mq9.client import Client
from mq9.client.connecting import Options
from mq9.sync.portal import Portal

Tool = Callable[..., Coroutine[Any, Any, str]]

__all__ = ["Toolkit"]


class Toolkit:
    """The tools of one agent; it connects at the first call.

    Tools can be called from any thread and any event loop, with `invoke` and `ainvoke`. The options
    are those of `mq9.Client`: they say who the agent is. `inbox` is the mailbox that tools use when
    their call names none. It is created if it is missing.
    """

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        *,
        inbox: str | None = None,
        group: str = "agent",
        **options: Unpack[Options],
    ) -> None:
        self._client = Client(url, **options)
        # The connection belongs to one event loop, and callers may have others, or none.
        self._portal = Portal(self._client.close)
        self._connecting: asyncio.Lock | None = None
        self._inbox = inbox
        self._connected_once = False
        self._has_inbox = inbox is None
        self._tools = AgentTools(self._connected, inbox=inbox, group=group)

    def get_tools(self) -> list[BaseTool]:
        """All tools, for `bind_tools`, `create_agent` or a `ToolNode`."""
        return [self._tool(translated(tool, ToolException)) for tool in self._tools.all]

    def close(self) -> None:
        """Close the connection; calls under way fail."""
        self._portal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def _connected(self) -> Client:
        self._connecting = self._connecting or asyncio.Lock()
        async with self._connecting:
            # A step that failed is tried again by the next call; what was done stays done.
            if not self._connected_once:
                await self._client.connect()
                self._connected_once = True
            if not self._has_inbox:
                await self._client.create_mailbox(self._inbox, exist_ok=True)
                self._has_inbox = True
        return self._client

    def _tool(self, tool: Tool) -> BaseTool:
        @functools.wraps(tool)
        def call(*given: Any, **named: Any) -> str:  # noqa: ANN401
            return self._portal.run(tool(*given, **named))

        @functools.wraps(tool)
        async def call_async(*given: Any, **named: Any) -> str:  # noqa: ANN401
            work = self._portal.start(tool(*given, **named))
            try:
                return await asyncio.wrap_future(work.ended)
            except asyncio.CancelledError:
                work.cancel()
                raise

        # A model is shown why a call failed, instead of the end of its run.
        return StructuredTool.from_function(
            call, call_async, description=inspect.getdoc(tool), handle_tool_error=True
        )
