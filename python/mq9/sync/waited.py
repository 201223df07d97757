"""Waits for one thing after the other: `with` it, then `for` over it."""

from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from mq9.sync.portal import Portal

Item = TypeVar("Item")
Brought = TypeVar("Brought", covariant=True)


class Source(Protocol[Brought]):
    """Its twin of asyncio."""

    async def __aenter__(self) -> object: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def __aiter__(self) -> object: ...

    async def __anext__(self) -> Brought: ...


class Waited(Generic[Item]):
    """Enters, leaves and iterates in the client's event loop."""

    def __init__(self, portal: Portal, source: Source[Item]) -> None:
        self._portal = portal
        self._source = source

    def __enter__(self) -> Self:
        self._portal.run(self._source.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._portal.run(self._source.__aexit__(kind, error, traceback))

    def __iter__(self) -> Self:
        self._source.__aiter__()
        return self

    def __next__(self) -> Item:
        """The next message; the one before it is done."""
        item = self._portal.run(self._next())
        if item is None:
            raise StopIteration
        return item

    async def _next(self) -> Item | None:
        # No future can hold the end of an iteration.
        try:
            return await self._source.__anext__()
        except StopAsyncIteration:
            return None
