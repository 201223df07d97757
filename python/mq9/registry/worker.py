"""The search worker: a process of its own, so that no search and no model holds up a message.

It is told of cards and asked for some over its standard input, and answers on its standard output.
When the input ends it ends, so it never outlives its broker. Owns in which order things are done:
changes first, then searches, then what the reader has to do.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import traceback
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from mq9.registry import frames
from mq9.registry.catalog import Catalog
from mq9.registry.embedder import load_embedder
from mq9.registry.progress import Progress
from mq9.registry.reader import Reader, prefer_to_be_killed
from mq9.registry.time_limit import time_limit
from mq9.registry.vector_file import VectorFile

if TYPE_CHECKING:
    from mq9.registry.embedder import Embedder, Name

_READ_BYTES = 1 << 20
# With more than this missing a search by meaning does not wait: it would be in vain.
_MANY_UNREAD = 500
# So few are read here while a search waits for them: another process would have to be started.
_FEW_UNREAD = 8
# What a card may take: of processor time, and of bytes. The largest that could ever be registered
# is smaller, and takes some milliseconds.
_CARD_S = 2.0
_CARD_BYTES = 1 << 20
# How long the reader may take for what it is asked, on a machine that may be busy.
_READ_S = 120.0
# Changes that nobody has asked for become visible when there is nothing else to do.
_COMMIT_AFTER_S = 1.0
# How often to look whether the model is there.
_POLL_S = 0.02
# Texts that are computed together.
_BATCH = 8
# How long a reader without work is kept.
_IDLE_S = 30.0
_MAX_DEATHS = 5
# So often a text may have been all that the reader had when it died.
_MAX_STRIKES = 2
# So many new cards are kept from the garbage collector at a time.
_MANY_NEW = 5000
_VECTORS = "vectors.mq9"


@dataclass(slots=True)
class Search:
    """A search that waits for its turn."""

    request: dict[str, Any]
    deadline_s: float
    is_told: bool = False
    """Whether the broker knows that it waits for something, and others can be asked for."""


class Worker:
    """Takes frames, gives frames."""

    def __init__(
        self, folder: Path, embedder: str, progress: Progress, *, source: int, sink: int
    ) -> None:
        self._progress = progress
        self._source = source
        self._sink = sink
        self._decoder = frames.Decoder()
        self._searches: deque[Search] = deque()
        self._changed_s = 0.0
        self._catalog = Catalog()
        self._embedder = embedder
        self._reader: Reader | None = None
        self._deaths = 0
        # So many texts are read one at a time, to find the one that ends the reader.
        self._singly = 0
        self._strikes: dict[bytes, int] = {}
        self._new = 0
        # Only this thread speaks: what the other one has to say waits here.
        self._notes: list[str] = []
        self._loading: Future[tuple[Embedder, VectorFile]] | None = None
        self._no_meaning = ""
        if embedder == "none":
            self._no_meaning = (
                "semantic is switched off on this broker (embedder: none): search with text"
            )
            self._catalog.ignore_meaning()
        else:
            # It takes a second or two; words can be searched for meanwhile.
            self._loading = Future()
            Thread(target=self._load, args=(folder, embedder, self._loading), daemon=True).start()

    def run(self) -> None:
        """Work until the broker is gone."""
        self._say({"kind": "ready"})
        while self._listen(self._patience()):
            self._progress.beat()
            self._answer()
            self._spare_time()

    def _load(self, folder: Path, name: str, loaded: Future[tuple[Embedder, VectorFile]]) -> None:
        try:
            model = load_embedder(cast("Name", name))
            path = folder / _VECTORS
            file = VectorFile(path, model.id, model.dimensions, self._notes.append)
            loaded.set_result((model, file))
        except BaseException as error:
            loaded.set_exception(error)

    def _use_model(self, loaded: Future[tuple[Embedder, VectorFile]]) -> None:
        self._loading = None
        for note in self._notes:
            self._tell("warn", note)
        try:
            model, file = loaded.result()
        except Exception as error:
            self._tell("error", f"agents are found by their words only: {error}")
            self._no_meaning = "semantic is not available on this broker: search with text"
            self._catalog.ignore_meaning()
            return
        self._catalog.understand(model, file)
        self._say({"kind": "understands"})
        self._tell("info", "Agents are found by meaning", embedder=model.id, vectors=len(file))

    def _patience(self) -> float | None:
        """How long to wait for something to do."""
        if self._loading or self._searches:
            return _POLL_S
        if self._catalog.unread and (self._reader is None or self._reader.is_idle):
            return 0.0 if self._deaths < _MAX_DEATHS else None
        if self._catalog.is_behind:
            return _COMMIT_AFTER_S
        return _IDLE_S if self._reader else None

    def _listen(self, timeout_s: float | None) -> bool:
        """Takes in all that has come; False at the end."""
        while True:
            sources = [self._source, *([self._reader.fileno()] if self._reader else ())]
            ready = select.select(sources, [], [], timeout_s)[0]
            if self._reader and self._reader.fileno() in ready:
                self._learn(self._reader)
            if self._source not in ready:
                return True
            data = os.read(self._source, _READ_BYTES)
            if not data:
                return False
            for frame in self._decoder.feed(data):
                self._take(frame)
            # While many cards come in, those who search do not wait for the last of them.
            if self._searches:
                return True
            timeout_s = 0.0

    def _take(self, frame: frames.Frame) -> None:
        head, body = frame
        kind = head["kind"]
        if kind == "search":
            self._searches.append(Search(head, head["until_s"]))
            return
        if kind == "card":
            self._add(head, body)
        elif kind == "drop":
            for number in frames.unpack(body):
                self._catalog.remove(number)
        elif kind == "seen":
            numbers = frames.unpack(body)
            for number, alive_ms in zip(numbers[::2], numbers[1::2], strict=True):
                self._catalog.seen(number, alive_ms)
        self._changed_s = monotonic()

    def _add(self, head: dict[str, Any], body: bytes) -> None:
        """Takes in a card; one that cannot be read is set aside, whatever is wrong with it."""
        number = head["id"]
        self._progress.begin(number)
        try:
            if len(body) > _CARD_BYTES:
                raise ValueError(f"it has {len(body)} bytes")
            with time_limit(_CARD_S):
                self._catalog.add(number, head["address"], head["tags"], head["alive_ms"], body)
            self._count_new()
        except Exception as error:
            self._catalog.remove(number)
            self._say({"kind": "aside", "id": number, "why": str(error) or repr(error)})
        self._progress.beat()

    def _count_new(self) -> None:
        self._new += 1
        if self._new >= _MANY_NEW:
            # Cards are no garbage: to look through them for some would hold up searches.
            self._new = 0
            gc.collect(1)
            gc.freeze()

    def _answer(self) -> None:
        """Answers what can be answered; searches by meaning may have to wait for vectors."""
        if not self._searches:
            return
        self._catalog.commit()
        self._read_here()
        unread = self._catalog.unread
        now_s = monotonic()
        for _ in range(len(self._searches)):
            search = self._searches.popleft()
            meaning = search.request["semantic"] is not None and not self._no_meaning
            soon = self._loading or 0 < unread <= _MANY_UNREAD
            if meaning and soon and now_s < search.deadline_s:
                self._searches.append(search)
                if not search.is_told:
                    search.is_told = True
                    self._say({"kind": "waits", "n": search.request["n"]})
            else:
                self._progress.beat()
                self._search(search.request)

    def _read_here(self) -> None:
        """Reads what little a search by meaning would have to wait for."""
        if self._loading or not any(
            each.request["semantic"] is not None for each in self._searches
        ):
            return
        if self._catalog.unread <= _FEW_UNREAD:
            while (number := self._catalog.first_unread()) is not None:
                self._progress.begin(number)
                self._catalog.read(number)
                self._progress.beat()

    def _search(self, request: dict[str, Any]) -> None:
        semantic = request["semantic"]
        answer: dict[str, Any] = {"kind": "found", "n": request["n"]}
        where = (request["tags"], request["alive_ms"], request["first"], request["count"])
        if semantic is None:
            found = self._catalog.by_words(request["text"], *where)
            missing = 0
        elif self._no_meaning:
            self._say(answer | {"error": self._no_meaning})
            return
        else:
            found = self._catalog.by_meaning(semantic, *where)
            missing = self._catalog.unread
        counts: dict[str, Any] = {"total": found.total, "missing": missing}
        if request["scores"]:
            counts["scores"] = found.scores
        self._say(answer | counts, frames.pack(found.numbers))

    def _spare_time(self) -> None:
        if self._loading and self._loading.done():
            self._use_model(self._loading)
        if self._reader and not self._reader.is_idle:
            if monotonic() - self._reader.asked_s >= _READ_S:
                self._mourn()
        elif self._catalog.unread and not self._loading:
            self._read()
        elif self._reader and monotonic() - self._reader.idle_since_s >= _IDLE_S:
            self._reader.close()
            self._reader = None
        if self._catalog.is_behind and monotonic() - self._changed_s >= _COMMIT_AFTER_S:
            self._catalog.commit()

    def _read(self) -> None:
        """Gives the reader something to do, unless it is busy."""
        if self._deaths >= _MAX_DEATHS or (self._reader and not self._reader.is_idle):
            return
        texts = self._catalog.next_texts(1 if self._singly else _BATCH)
        if not texts:
            return
        self._singly = max(0, self._singly - 1)
        try:
            if self._reader is None:
                self._reader = Reader(self._embedder)
            self._reader.ask(texts)
        except OSError:
            self._mourn()

    def _learn(self, reader: Reader) -> None:
        try:
            vectors = reader.answers()
        except EOFError:
            self._mourn()
            return
        if vectors:
            self._deaths = 0
            self._catalog.learn(vectors)
            self._catalog.next_texts(0)

    def _mourn(self) -> None:
        """The reader died: another one, without the text that ends it."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
        if reader is None or not reader.is_ready:
            # No text is to blame, and another one will not do better for ever.
            self._deaths += 1
            if self._deaths == _MAX_DEATHS:
                self._tell("error", "new agents are found by their words only: reading them failed")
        elif len(reader.asked) > 1:
            self._singly = len(reader.asked)
        else:
            self._singly += 1
            for text in reader.asked:
                self._blame(text)

    def _blame(self, text: bytes) -> None:
        self._strikes[text] = self._strikes.get(text, 0) + 1
        if self._strikes[text] < _MAX_STRIKES:
            return
        del self._strikes[text]
        for number in self._catalog.give_up(text):
            self._say({"kind": "words only", "id": number})

    def _tell(self, level: str, text: str, **fields: object) -> None:
        self._say({"kind": "log", "level": level, "text": text, "fields": fields})

    def _say(self, head: dict[str, Any], body: bytes = b"") -> None:
        rest = memoryview(frames.encode(head, body))
        while rest:
            rest = rest[os.write(self._sink, rest) :]


def main() -> int:
    """Run a worker: `python -m mq9.registry.worker <folder> <embedder> <progress>`."""
    prefer_to_be_killed()
    # The broker decides when to stop; a key pressed in its terminal is not for its worker.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    # Its files lie in the data directory and are as private as the rest of it.
    os.umask(0o077)
    # Whatever a library prints must not land among the frames.
    sink = os.dup(1)
    os.dup2(2, 1)
    try:
        folder, embedder, descriptor = sys.argv[1:]
        progress = Progress(int(descriptor))
        Worker(Path(folder), embedder, progress, source=0, sink=sink).run()
    except BrokenPipeError:
        return 0
    except BaseException as error:
        # A panic of a native library is no Exception. The broker starts another worker.
        text = traceback.format_exception_only(error)[-1].strip()
        os.write(sink, frames.encode({"kind": "log", "level": "error", "text": text, "fields": {}}))
        sys.stderr.write(traceback.format_exc())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
