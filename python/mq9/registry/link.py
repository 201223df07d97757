"""The broker's end of the search worker: starts it, tells it of every card, asks it, and starts
another one when it dies.

The worker is told of cards in the order of their numbers. New cards have greater numbers than all
before, so one number says how far it has been told, and a new worker is simply told from the
beginning. Knows nothing of what is searched for.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import dataclass
from itertools import count, islice
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from mq9.registry import frames
from mq9.registry.progress import processor_time_s, shared
from mq9.registry.search_queue import SearchQueue

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mq9.registry.order import Order
    from mq9.registry.progress import Progress
    from mq9.registry.roster import Agent

_READ_BYTES = 1 << 20
# What telling may take of one round of the loop.
_ROUND_S = 0.001
_STEP_CARDS = 32
# How long a search waits until the worker knows all that was there when it began, by meaning too:
# longer while its model is being loaded. Shorter than clients wait, for many of them 5 s.
_PATIENCE_S = 2.0
_FIRST_PATIENCE_S = 4.5
# How long until a worker that died is started again: longer each time it dies young.
_FIRST_BACKOFF_S = 0.1
_MAX_BACKOFF_S = 5.0
_YOUNG_S = 10.0
_ANSWER_S = 30.0
# A worker that has something to do and begins nothing for so long is ended: loading a model takes
# long.
_HANG_S = 60.0
# One card takes milliseconds. So much processor time for it proves that it is at fault; if it only
# waits, the disk may be.
_CARD_CPU_S = 10.0
_CARD_HANG_S = 20.0
_LOOK_S = 1.0
# Whoever is killed may have been in the middle of any card: not so when it ended by itself.
_KILLED = (-signal.SIGKILL, -signal.SIGTERM)
_MAX_STRIKES = 2


class Log(Protocol):
    """Where the operator is told."""

    def info(self, text: str, **fields: object) -> None: ...
    def warn(self, text: str, **fields: object) -> None: ...
    def error(self, text: str, **fields: object) -> None: ...


class WorkerLostError(Exception):
    """The worker died before it answered."""


class SearchRefusedError(Exception):
    """The worker cannot carry out this search; the text says why."""


class Page:
    """What a search found: numbers of cards, how many in all, and how many were not looked at."""

    def __init__(self, numbers: list[int], scores: list[float], total: int, missing: int) -> None:
        self.numbers = numbers
        self.scores = scores
        """One for each, if they were asked for."""
        self.total = total
        self.missing = missing


@dataclass(frozen=True, slots=True)
class _Asked:
    """A search that is not answered yet."""

    request: dict[str, Any]
    is_wanted: Callable[[], bool]
    answer: asyncio.Future[Page]


class Link:
    """One worker, and the next one when it is gone."""

    def __init__(
        self,
        order: Order[Agent],
        card: Callable[[Agent], bytes | None],
        *,
        folder: Path,
        embedder: str,
        log: Log,
    ) -> None:
        self._order = order
        self._card = card
        self._folder = folder
        self._embedder = embedder
        self._log = log
        self._task: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._told = -1
        self._dropped: list[int] = []
        self._seen: dict[int, int] = {}
        self._work = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._writer: asyncio.StreamWriter | None = None
        self._asked: dict[int, _Asked] = {}
        self._waiting_searches = SearchQueue()
        self._numbers = count()
        self._started = asyncio.Event()
        self._understands = embedder == "none"
        # Cards that the worker cannot read, and how often it died with one in its hands.
        self._aside: set[int] = set()
        self._strikes: dict[int, int] = {}

    def start(self) -> None:
        """Start the worker, unless it was started."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._keep_running())

    def close(self) -> None:
        """Stop the worker; searches under way fail."""
        if self._task is not None:
            self._task.cancel()
        # What it keeps can be lost at any time.
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    @property
    def pid(self) -> int | None:
        """The worker's process."""
        return None if self._process is None else self._process.pid

    @property
    def unread(self) -> int:
        """Cards that no search finds by meaning yet: the worker was not told of them."""
        return self._order.count_behind(self._told) if self._task is not None else 0

    @property
    def set_aside(self) -> int:
        """Cards that could not be read."""
        return len(self._aside)

    def wake(self) -> None:
        """There is something to tell."""
        self._work.set()

    def drop(self, agent: Agent) -> None:
        """An agent is gone, or has another card."""
        if agent.number <= self._told:
            self._dropped.append(agent.number)
            self._work.set()
        self._seen.pop(agent.number, None)
        self._aside.discard(agent.number)
        self._strikes.pop(agent.number, None)

    def seen(self, agent: Agent) -> None:
        """An agent was heard of."""
        # Told when somebody asks for those who are alive.
        if agent.number <= self._told:
            self._seen[agent.number] = agent.alive_until_ms

    def patience_ends_s(self) -> float:
        """Until when a search that begins now waits for the worker, and for what it has to read."""
        return monotonic() + (_PATIENCE_S if self._understands else _FIRST_PATIENCE_S)

    def unsearched(self) -> Page:
        """What can be said without a worker: nobody was looked at."""
        return Page([], [], 0, self._order.count_behind(-1))

    def search(
        self, cid: int, request: dict[str, Any], until_s: float, is_wanted: Callable[[], bool]
    ) -> asyncio.Future[Page]:
        """A page of what `request` asks for; WorkerLostError or SearchRefusedError if it fails.

        Connections take turns. A search is cancelled if nobody wants it when its turn comes.
        """
        search: asyncio.Future[Page]
        request = {**request, "until_s": until_s}
        if self._writer is None or self._dropped or self._is_untold(self._order.last):
            search = asyncio.get_running_loop().create_task(self._search(cid, request, is_wanted))
        else:
            # At once: each round of a loop that is full of messages takes a while.
            search = self._ask(cid, request, is_wanted)
        # Who asked may be gone when it fails: then nobody looks.
        search.add_done_callback(lambda done: done.cancelled() or done.exception())
        return search

    async def _search(
        self, cid: int, request: dict[str, Any], is_wanted: Callable[[], bool]
    ) -> Page:
        wanted = self._order.last
        try:
            async with asyncio.timeout(request["until_s"] - monotonic()):
                await self._started.wait()
                await self._until_told(wanted)
        except TimeoutError:
            # Then what is known so far has to do.
            if self._writer is None:
                return self.unsearched()
        untold = self._order.count_behind(self._told)
        page = await self._ask(cid, request, is_wanted)
        page.missing = max(page.missing, untold)
        return page

    async def _until_told(self, wanted: int) -> None:
        while self._dropped or self._is_untold(wanted):
            step: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(step)
            await step

    def _is_untold(self, wanted: int) -> bool:
        first = next(self._order.behind(self._told), None)
        return first is not None and first.number <= wanted

    def _ask(
        self, cid: int, request: dict[str, Any], is_wanted: Callable[[], bool]
    ) -> asyncio.Future[Page]:
        number = next(self._numbers)
        answer: asyncio.Future[Page] = asyncio.get_running_loop().create_future()
        self._asked[number] = _Asked(request, is_wanted, answer)
        self._waiting_searches.add(cid, number)

        def done(_: asyncio.Future[Page]) -> None:
            del self._asked[number]
            self._waiting_searches.done(cid, number)
            self._send_next()

        answer.add_done_callback(done)
        self._send_next()
        return answer

    def _send_next(self) -> None:
        """Gives the worker what it is to do next, if it has little."""
        while (number := self._waiting_searches.next()) is not None:
            asked = self._asked[number]
            if not asked.is_wanted():
                asked.answer.cancel()
            elif not asked.answer.done():
                self._refuse_in_time(asked.answer)
                try:
                    self._send(number, asked.request)
                except WorkerLostError as error:
                    asked.answer.set_exception(error)

    def _refuse_in_time(self, answer: asyncio.Future[Page]) -> None:
        timer = asyncio.get_running_loop().call_later(_ANSWER_S, _refuse, answer)
        answer.add_done_callback(lambda _: timer.cancel())

    def _send(self, number: int, request: dict[str, Any]) -> None:
        if self._writer is None:
            raise WorkerLostError
        said = b""
        if request["alive_ms"] is not None and self._seen:
            pairs = (number for pair in self._seen.items() for number in pair)
            said = frames.encode({"kind": "seen"}, frames.pack(pairs))
        said += frames.encode({"kind": "search", "n": number, **request})
        try:
            self._writer.write(said)
        except (OSError, RuntimeError):
            # It has just died, and that is not known everywhere yet.
            self._writer = None
            self._started.clear()
            raise WorkerLostError from None
        if request["alive_ms"] is not None:
            self._seen.clear()

    async def _keep_running(self) -> None:
        loop = asyncio.get_running_loop()
        backoff_s = _FIRST_BACKOFF_S
        while True:
            began_s = loop.time()
            try:
                why = await self._run()
            except OSError as error:
                why = str(error)
            if loop.time() - began_s > _YOUNG_S:
                backoff_s = _FIRST_BACKOFF_S
            self._log.error("the search of agents ended: it is started again", why=why)
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, _MAX_BACKOFF_S)

    async def _run(self) -> str:
        """One life of a worker; how it ended."""
        file, progress = shared()
        with file:
            command = ("-m", "mq9.registry.worker", str(self._folder), self._embedder)
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, *command, str(file.fileno())),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                pass_fds=(file.fileno(),),
                # One core is enough for it: the others are for messages.
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            )
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._told = -1
        self._dropped.clear()
        self._seen.clear()
        hangs = asyncio.create_task(self._until_it_hangs(process.pid, progress))
        tasks: set[asyncio.Task[Any]] = {
            asyncio.create_task(self._hear(process.stdout)),
            asyncio.create_task(self._tell(process.stdin)),
            hangs,
        }
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._writer = None
            self._started.clear()
            self._understands = self._embedder == "none"
            for task in tasks:
                task.cancel()
            if process.returncode is None:
                process.kill()
            for asked in self._asked.values():
                if not asked.answer.done():
                    asked.answer.set_exception(WorkerLostError())
        await asyncio.gather(*tasks, return_exceptions=True)
        status = await process.wait()
        is_proven = not hangs.cancelled() and hangs.exception() is None and hangs.result()
        self._blame(progress.card, status, is_proven=is_proven)
        return f"exit status {status}"

    async def _until_it_hangs(self, pid: int, progress: Progress) -> bool:
        """Returns when the worker has something to do and has begun nothing for long.

        True if its card is at fault for sure.
        """
        beats, quiet_s, began_s = -1, 0.0, 0.0
        while True:
            await asyncio.sleep(_LOOK_S)
            used_s = processor_time_s(pid)
            is_busy = bool(self._asked) or progress.card is not None
            if not is_busy or progress.beats != beats:
                beats, quiet_s, began_s = progress.beats, 0.0, used_s
                continue
            # Time in which nobody looked does not count: the machine may have stood still.
            quiet_s += _LOOK_S
            if progress.card is not None and used_s - began_s >= _CARD_CPU_S:
                self._log.error("the search of agents takes too long for a card: it is ended")
                return True
            if quiet_s >= (_HANG_S if progress.card is None else _CARD_HANG_S):
                self._log.error("the search of agents hangs: it is ended")
                return False

    def _blame(self, number: int | None, status: int, *, is_proven: bool) -> None:
        """The worker ended, maybe with a card in its hands."""
        if number is None:
            return
        self._strikes[number] = self._strikes.get(number, 0) + 1
        if is_proven or status not in _KILLED or self._strikes[number] >= _MAX_STRIKES:
            del self._strikes[number]
            self._set_aside(number, f"the search ended with it: exit status {status}")

    def _set_aside(self, number: int, why: str) -> None:
        agent = self._order.find(number)
        if agent is None:
            return
        self._aside.add(number)
        self._log.error("an agent cannot be searched for: set aside", agent=agent.address, why=why)

    async def _hear(self, source: asyncio.StreamReader) -> None:
        decoder = frames.Decoder()
        while data := await source.read(_READ_BYTES):
            for head, body in decoder.feed(data):
                self._take(head, body)

    def _take(self, head: dict[str, Any], body: bytes) -> None:
        if head["kind"] == "log":
            say = {"info": self._log.info, "warn": self._log.warn}
            say.get(head["level"], self._log.error)(head["text"], **head["fields"])
            return
        if head["kind"] == "understands":
            self._understands = True
            return
        if head["kind"] == "aside":
            self._set_aside(head["id"], head["why"])
            return
        if head["kind"] == "words only":
            if agent := self._order.find(head["id"]):
                text = "an agent is found by its words only: reading it failed"
                self._log.error(text, agent=agent.address)
            return
        number = head.get("n", -1)
        if head["kind"] == "waits":
            self._waiting_searches.waits(number)
            self._send_next()
            return
        asked = self._asked.get(number)
        if asked is None or asked.answer.done():
            return
        answer = asked.answer
        if error := head.get("error"):
            answer.set_exception(SearchRefusedError(error))
        else:
            numbers, scores = list(frames.unpack(body)), head.get("scores", [])
            answer.set_result(Page(numbers, scores, head["total"], head["missing"]))

    async def _tell(self, sink: asyncio.StreamWriter) -> None:
        """Tells the worker of all that is there, and then of all that changes."""
        self._writer = sink
        self._started.set()
        while True:
            if self._dropped:
                sink.write(frames.encode({"kind": "drop"}, frames.pack(self._dropped)))
                self._dropped.clear()
            end = perf_counter() + _ROUND_S
            some = list(islice(self._order.behind(self._told), _STEP_CARDS))
            for agent in some:
                if agent.number not in self._aside and (body := self._card(agent)) is not None:
                    sink.write(frames.encode(_head(agent), body))
                self._told = agent.number
                if perf_counter() >= end:
                    break
            for step in self._waiting:
                if not step.done():
                    step.set_result(None)
            self._waiting.clear()
            if some:
                await sink.drain()
                await asyncio.sleep(0)
            elif not self._dropped:
                self._work.clear()
                await self._work.wait()


def _refuse(answer: asyncio.Future[Page]) -> None:
    if not answer.done():
        answer.set_exception(SearchRefusedError("the search took too long: try again later"))


def _head(agent: Agent) -> dict[str, Any]:
    return {
        "kind": "card",
        "id": agent.number,
        "address": agent.address,
        "tags": agent.tags,
        "alive_ms": agent.alive_until_ms,
    }
