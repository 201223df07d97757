"""Dead letters in a table of PostgreSQL, each once.

Owns the table, how far each mailbox and stream has been copied, and what happens while the database
is away. Rows have ids that follow from their letters, and places are kept in the same transaction,
so that neither a crash nor a repetition makes a second row. The broker keeps its letters as before.
"""

import asyncio
import logging
import math
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import asyncpg

from mq9.manage.archive_name import TABLE, name_of
from mq9.manage.documents import Document, as_document, wrapped
from mq9.manage.letter import attempts_of, payload_of, read_letter
from mq9.manage.letter_places import LetterPlace, LetterPlaces
from mq9.manage.link import BrokerGoneError, CredentialsError, Link, RefusedError
from mq9.manage.mirror import Mirror

_LOG = logging.getLogger("mq9.manage")
_EVERY_S = 1.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 15.0
_CONNECT_S, _COMMAND_S = 5.0, 20.0
_PAGE = 500
_RESOLVED = "$resolved"
_NAMESPACE = uuid.UUID("6f0b4ad6-6c2b-5d43-9f43-1f9bb5a1c0de")

_TABLES = (
    """
CREATE TABLE IF NOT EXISTS dead_letters (
    id          UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    original_id TEXT NOT NULL,
    subject     TEXT NOT NULL,
    payload     JSONB NOT NULL,
    error       TEXT,
    attempts    INTEGER NOT NULL,
    first_seen  TIMESTAMPTZ NOT NULL,
    last_failed TIMESTAMPTZ NOT NULL DEFAULT now(),
    resolved    BOOLEAN NOT NULL DEFAULT false
);
CREATE TABLE IF NOT EXISTS mq9_dead_letter_positions (
    broker  TEXT NOT NULL,
    mailbox TEXT NOT NULL,
    created BIGINT NOT NULL,
    next_id BIGINT NOT NULL,
    PRIMARY KEY (broker, mailbox)
);
"""
    + TABLE
)
_INSERT = """
INSERT INTO dead_letters
    (id, original_id, subject, payload, error, attempts, first_seen, last_failed, resolved)
VALUES ($1, $2, $3, $4::jsonb, $5, $6, $7, $8, $9)
ON CONFLICT (id) DO UPDATE SET resolved = dead_letters.resolved OR excluded.resolved
"""
_PLACE = """
INSERT INTO mq9_dead_letter_positions (broker, mailbox, created, next_id) VALUES ($1, $2, $3, $4)
ON CONFLICT (broker, mailbox) DO UPDATE SET created = excluded.created, next_id = excluded.next_id
"""
_MOST_ATTEMPTS = (1 << 31) - 1

Connection = Any
"""What asyncpg's connections are; it has no types."""


@dataclass(slots=True)
class _Place:
    """How far a mailbox or stream has been copied."""

    created: int
    next_id: int


@dataclass(slots=True)
class _Row:
    id: uuid.UUID
    original_id: str
    subject: str
    payload: Document
    error: str
    attempts: int
    first_seen: datetime
    last_failed: datetime
    resolved: bool

    def values(self, payload: str) -> tuple[Any, ...]:
        return (
            *(self.id, self.original_id, self.subject, payload, self.error, self.attempts),
            *(self.first_seen, self.last_failed, self.resolved),
        )


class Archive:
    """Copies dead letters into the table until it is stopped."""

    def __init__(self, link: Link, mirror: Mirror, url: str, broker: str) -> None:
        self._link = link
        self._mirror = mirror
        self._letter_places = LetterPlaces(link, mirror)
        self._url = url
        self._wanted = broker
        self._broker = ""
        """What it is called in the database, once that is known."""
        self._connection = -1
        """The connection to the broker since which that is so: behind another one may be another
        store."""
        self._places: dict[str, _Place] = {}
        self.copied = 0
        """Letters copied since this process started, also those that were there already."""
        self.gone_since: float | None = time.time()
        """Since when the database cannot be written to; None if it can."""
        self.problem = "not connected yet"
        self._pause_s = _FIRST_PAUSE_S

    async def run(self) -> None:
        """Copy; every failure is a reason to try again, less and less often."""
        while True:
            connection: Connection = None
            try:
                connection = await self._connect()
                await self._begin(connection)
                await self._follow(connection)
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                self._lost(f"{error}" or type(error).__name__)
            except Exception as error:
                # Whatever it is: what is not copied now is copied later, and until then it is told.
                _LOG.exception("copying dead letters failed")
                self._lost(f"{type(error).__name__}: {error}")
            finally:
                if connection is not None:
                    connection.terminate()
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)

    async def _connect(self) -> Connection:
        try:
            async with asyncio.timeout(2 * _CONNECT_S):
                return await asyncpg.connect(
                    self._url, timeout=_CONNECT_S, command_timeout=_COMMAND_S
                )
        except ValueError as error:
            raise OSError(f"this is no usable URL of a database: {error}") from None

    def _lost(self, problem: str) -> None:
        if self.gone_since is None:
            self.gone_since = time.time()
        if problem != self.problem:
            _LOG.warning("dead letters cannot be copied to PostgreSQL: %s", problem)
        self.problem = problem

    def _found(self) -> None:
        if self.gone_since is not None:
            _LOG.info("dead letters are copied to PostgreSQL")
        self.gone_since, self.problem, self._pause_s = None, "", _FIRST_PAUSE_S

    async def _begin(self, connection: Connection) -> None:
        with suppress(asyncpg.UniqueViolationError, asyncpg.DuplicateObjectError):
            # Raised if two create the same table at once; then it is there.
            await connection.execute(_TABLES)
        self._connection = -1

    async def _take_name(self, connection: Connection) -> None:
        # Looked at before: an answer of an earlier connection must not count for a later one.
        since = self._link.connections
        told = await self._link.request("ADMIN.DEAD.RESOLVED", {"limit": 1, "store": True})
        store = str(told.get("store", ""))
        self._broker = await name_of(connection, self._wanted, store)
        rows = await connection.fetch(
            "SELECT mailbox, created, next_id FROM mq9_dead_letter_positions WHERE broker = $1",
            self._broker,
        )
        self._places = {row["mailbox"]: _Place(row["created"], row["next_id"]) for row in rows}
        self._connection = since

    async def _follow(self, connection: Connection) -> None:
        while True:
            try:
                # Whoever follows the broker tells that it is gone.
                with suppress(BrokerGoneError, CredentialsError):
                    await self._copy_all(connection)
            except RefusedError as error:
                self._lost(f"the broker refused: {error}")
            else:
                self._found()
            await asyncio.sleep(_EVERY_S)
            # An idle connection that has broken is noticed here.
            await connection.fetchval("SELECT 1")

    async def _copy_all(self, connection: Connection) -> None:
        if not self._mirror.whole:
            return
        if self._connection != self._link.connections:
            await self._take_name(connection)
        # A mailbox stays one of dead letters when those that fed it have gone.
        places = {place.address: place for place in await self._letter_places.find()}
        for address in sorted(places.keys() | self._places.keys()):
            if address == _RESOLVED:
                continue
            place = places.get(address) or LetterPlace(address)
            found, known = place.find(self._mirror), self._places.get(address)
            if found is None:
                continue
            created_ms, (_, next_id) = found
            if known is None or (known.created, known.next_id) != (created_ms // 1000, next_id):
                with suppress(RefusedError):
                    # Refused: it has gone meanwhile.
                    await self._copy(connection, place)
        await self._copy_resolved(connection)

    async def _copy(self, connection: Connection, place: LetterPlace) -> None:
        created, next_id = await place.look(self._link)
        known = self._places.get(place.address)
        if known is None or known.created != created or known.next_id > next_id:
            known = _Place(created, 0)
        following: int | None = known.next_id
        while following is not None:
            page, following = await place.page(self._link, following)
            read_to = next_id if following is None else following
            if page:
                read_to = max(read_to, int(page[-1]["msg_id"]) + 1)
            known = _Place(created, max(read_to, known.next_id))
            rows = [row for entry in page if (row := self._row(place.address, entry)) is not None]
            if page:
                await self._write(connection, place.address, rows, known)
            # Without letters it is not worth a transaction: they are looked for again.
            self._places[place.address] = known

    async def _copy_resolved(self, connection: Connection) -> None:
        """What operators have dealt with; also letters that were gone before they were copied."""
        known = self._places.get(_RESOLVED) or _Place(0, 0)
        while True:
            fields: dict[str, Any] = {"limit": _PAGE}
            if known.next_id:
                fields["after"] = known.next_id - 1
            answer = await self._link.request("ADMIN.DEAD.RESOLVED", fields)
            notes, newest = answer["letters"], answer["newest"]
            if known.next_id and (newest is None or newest < known.next_id - 1):
                # The broker began anew, with an empty folder.
                known = _Place(0, 0)
                continue
            if not notes:
                return
            known = _Place(0, int(answer["last"]) + 1)
            await self._write(connection, _RESOLVED, map(self._noted, notes), known)

    async def _write(
        self, connection: Connection, mailbox: str, rows: Iterable[_Row], place: _Place
    ) -> None:
        rows = list(rows)
        try:
            async with connection.transaction():
                await connection.executemany(
                    _INSERT, [row.values(row.payload.text) for row in rows]
                )
                await self._note(connection, mailbox, place)
        except asyncpg.DataError:
            # JSON that JSONB cannot hold, such as a number of a million digits.
            async with connection.transaction():
                for row in rows:
                    await _write_alone(connection, row)
                await self._note(connection, mailbox, place)
        self._places[mailbox] = place
        self.copied += len(rows)

    async def _note(self, connection: Connection, mailbox: str, place: _Place) -> None:
        await connection.execute(_PLACE, self._broker, mailbox, place.created, place.next_id)

    def _row(self, address: str, entry: dict[str, Any]) -> _Row | None:
        letter = read_letter(address, entry)
        if letter is None:
            return None
        return _Row(
            id=self._id(letter.id, letter.last_failed, letter.subject, letter.original_id),
            original_id=_storable(letter.original_id),
            subject=_storable(letter.subject),
            payload=as_document(payload_of(entry)),
            error=_storable(_error(letter.reason, letter.detail)),
            attempts=min(letter.attempts, _MOST_ATTEMPTS),
            first_seen=_moment(letter.first_seen),
            last_failed=_moment(letter.last_failed),
            resolved=False,
        )

    def _noted(self, note: dict[str, Any]) -> _Row:
        return _Row(
            id=self._id(note["id"], note["last_failed"], note["subject"], note["original_id"]),
            original_id=_storable(note["original_id"]),
            subject=_storable(note["subject"]),
            payload=as_document(payload_of(note)),
            error=_storable(_error(note["error"], note.get("detail", ""))),
            attempts=min(attempts_of(note), _MOST_ATTEMPTS),
            first_seen=_moment(note["first_seen"]),
            last_failed=_moment(note["last_failed"]),
            resolved=True,
        )

    def _id(self, letter: str, moment: int, subject: str, original_id: str) -> uuid.UUID:
        # The time tells a letter from one of an earlier mailbox with the same address.
        name = "\n".join((self._broker, letter, str(moment), subject, original_id))
        return uuid.uuid5(_NAMESPACE, name)


async def _write_alone(connection: Connection, row: _Row) -> None:
    try:
        async with connection.transaction():
            await connection.execute(_INSERT, *row.values(row.payload.text))
    except asyncpg.DataError:
        await connection.execute(_INSERT, *row.values(wrapped(row.payload.source)))


def _error(reason: str, detail: str) -> str:
    return f"{reason}: {detail}" if detail else reason


def _storable(text: str) -> str:
    return text.replace("\0", "")


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(math.floor(seconds), UTC)
