"""Identifies the caller of a request, and what it may do.

Owns sessions, and the refusals that keep other web sites out: host names, origins and tokens. What
a user may do is the broker's to say: each user has a connection of their own to it.
"""

import asyncio
import base64
import binascii
import hashlib
import ipaddress
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from starlette.requests import Request

from mq9.local_requests import LOOPBACK, host_name, is_local
from mq9.manage.attempts import Attempts
from mq9.manage.link import BrokerGoneError, CredentialsError, Link, RefusedError
from mq9.manage.problems import Problem
from mq9.manage.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

K = TypeVar("K", str, bytes)

COOKIE = "mq9_session"
CSRF_HEADER = "x-csrf-token"
_IDLE_S = 30 * 60
_LONGEST_S = 12 * 3600
_MAX_SESSIONS = 20
# How long a user is taken to have the rights that the broker told of.
_ROLE_S = 10.0
# A broker that hangs holds those up for so long whose rights are known.
_ROLE_WAIT_S = 1.0
_SAFE = {"GET", "HEAD", "OPTIONS"}
_PROBES = {"/healthz", "/metrics"}
_NOT_LOCAL = (
    "this broker asks nobody who they are, so only clients of the same machine may use this, "
    "by the name localhost and not through a proxy: give the broker users"
)


@dataclass
class Person:
    """A user of the broker, and the connection that acts in their name."""

    link: Link
    user: str
    look: bool = False
    steer: bool = False
    local: bool = False
    """Whether the rights are those of everybody on this machine, whatever the user said."""
    checked: float = 0.0
    learning: asyncio.Task[BrokerGoneError | None] | None = None
    """Asks the broker what they may do; ends with what is told of a broker that does not answer."""
    began: float = field(default_factory=time.monotonic)
    used: float = field(default_factory=time.monotonic)
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    address: str = ""

    @property
    def role(self) -> str:
        """What they may do, in a word."""
        return "steer" if self.steer else "look" if self.look else "none"

    @property
    def is_over(self) -> bool:
        """Whether the session has ended."""
        now = time.monotonic()
        return now - self.used > _IDLE_S or now - self.began > _LONGEST_S


class Access:
    """Decides about every request."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._hosts = LOOPBACK | {settings.host.lower()} | set(settings.hosts)
        self._anonymous = Person(Link(settings), "")
        self._sessions: dict[str, Person] = {}
        self._basic: dict[bytes, Person] = {}
        self._attempts = Attempts()
        self.is_gone: Callable[[], bool] = lambda: False
        """Whether the broker is known not to answer: nobody then waits for it in vain."""

    async def close(self) -> None:
        """End all sessions."""
        people = [self._anonymous, *self._sessions.values(), *self._basic.values()]
        for person in people:
            await person.link.close()

    def check_origin(self, request: Request) -> None:
        """Refuse what another web site has a browser send, under whatever name it reaches us."""
        host = request.headers.get("host", "")
        if host_name(host) not in self._hosts and not self._is_probe(request, host_name(host)):
            raise Problem(403, f"this server does not answer to the name {host_name(host)[:100]!r}")
        origin = request.headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            raise Problem(403, "requests of other web sites are refused")
        site = request.headers.get("sec-fetch-site", "none")
        if request.method not in _SAFE and site not in ("none", "same-origin"):
            raise Problem(403, "requests of other web sites are refused")

    def _is_probe(self, request: Request, name: str) -> bool:
        """Whether this is a probe or a scraper, which use whatever name they find us by.

        A web site whose name is made to lead here (rebinding) has a name, and no address.
        """
        if request.method not in _SAFE or request.url.path not in _PROBES:
            return False
        return _is_address(name) or bool({name, "*"} & set(self._settings.probe_hosts))

    async def who(self, request: Request, *, steer: bool = False) -> Person:
        """Who sends a request that needs this right; a Problem if they may not."""
        person = await self._known(request)
        await self._learn(person)
        if person.local and not is_local(request.headers, peer(request)):
            # The rights are those of this process, which is on the same machine as the broker.
            raise Problem(403, _NOT_LOCAL)
        if not person.look:
            if person is self._anonymous:
                raise _sign_in("sign in as an operator of the broker")
            raise Problem(403, "this user is no operator of the broker")
        if steer and not person.steer:
            raise Problem(403, "this user may look and not steer")
        person.used = time.monotonic()
        person.address = peer(request)
        return person

    async def _known(self, request: Request) -> Person:
        given = request.headers.get("authorization", "")
        if given:
            return await self._with_password(request, given)
        cookie = request.cookies.get(COOKIE)
        if cookie is not None:
            person = self._sessions.get(cookie)
            if person is not None and person.is_over:
                await self._end(self._sessions, cookie)
                person = None
            if person is None:
                return self._anonymous
            if request.method not in _SAFE:
                token = request.headers.get(CSRF_HEADER, "")
                if not secrets.compare_digest(token.encode(), person.csrf.encode()):
                    raise Problem(403, f"the header {CSRF_HEADER} is not that of the session")
            return person
        return self._anonymous

    async def _learn(self, person: Person) -> None:
        """Ask the broker what they may do, from time to time: a reload may have changed it.

        What is known can still be looked at while it does not answer; a change asks it anyway.
        """
        if time.monotonic() - person.checked < _ROLE_S:
            return
        if person.learning is None or person.learning.done():
            person.learning = asyncio.get_running_loop().create_task(_ask(person))
        known = person.look
        wait_s = None if not known else 0.0 if self.is_gone() else _ROLE_WAIT_S
        # All who come meanwhile wait for the same answer, and none of them ends the asking.
        await asyncio.wait((person.learning,), timeout=wait_s)
        if not known and (gone := person.learning.result()) is not None:
            raise gone

    async def _with_password(self, request: Request, given: str) -> Person:
        user, password = _basic(given)
        # Only a hash is kept of what was given.
        name = hashlib.sha256(given.encode("utf-8", "replace")).digest()
        person = self._basic.get(name)
        if person is not None and person.is_over:
            await self._end(self._basic, name)
            person = None
        if person is None:
            opened = await self._open(request, user, password)
            person = self._basic.setdefault(name, opened)
            if person is not opened:
                # Another request of the same user was faster.
                await opened.link.close()
            await self._shed(self._basic, person.user)
        return person

    async def sign_in(self, request: Request, user: str, password: str) -> tuple[str, Person]:
        """Begin a session; the cookie's value."""
        person = await self._open(request, user, password)
        try:
            if person.local:
                text = "this broker asks nobody who they are: there is nothing to sign in to"
                raise Problem(403, text if is_local(request.headers, peer(request)) else _NOT_LOCAL)
            if not person.look:
                raise Problem(403, "this user is no operator of the broker")
        except BaseException:
            await person.link.close()
            raise
        cookie = secrets.token_urlsafe(32)
        self._sessions[cookie] = person
        await self._shed(self._sessions, person.user)
        return cookie, person

    async def sign_out(self, request: Request) -> Person | None:
        """End a session; whose it was."""
        return await self._end(self._sessions, request.cookies.get(COOKIE, ""))

    async def _open(self, request: Request, user: str, password: str) -> Person:
        address = peer(request)
        began = self._attempts.begin(address, user)
        if began is None:
            raise Problem(429, "too many failed attempts; wait a minute")
        link = Link(self._settings, user, password)
        try:
            await link.open()
        except CredentialsError as error:
            raise _sign_in(str(error)) from None
        except BrokerGoneError:
            self._attempts.forgive(address, user, began)
            raise
        self._attempts.forgive(address, user, began)
        self._attempts.note_known(address, user)
        person = Person(link, user)
        try:
            await self._learn(person)
        except BaseException:
            await link.close()
            raise
        return person

    async def _end(self, people: dict[K, Person], name: K) -> Person | None:
        person = people.pop(name, None)
        if person is not None:
            await person.link.close()
        return person

    async def _shed(self, people: dict[K, Person], user: str) -> None:
        """End sessions that are over, and the oldest of too many of one user.

        Where nobody has to prove a name, all are one user.
        """
        theirs = [name for name, person in people.items() if person.user == user]
        ended = {name for name, person in people.items() if person.is_over}
        for name in ended.union(theirs[:-_MAX_SESSIONS]):
            await self._end(people, name)


async def _ask(person: Person) -> BrokerGoneError | None:
    try:
        told = await person.link.request("ADMIN.ACCESS")
    except (CredentialsError, RefusedError):
        person.look = person.steer = person.local = False
    except BrokerGoneError as error:
        return error
    else:
        person.look, person.steer = bool(told["look"]), bool(told["steer"])
        person.local = bool(told.get("local", True))
        # Where nobody has to prove a name, the one that was given means nothing.
        person.user = "" if person.local else person.user
    person.checked = time.monotonic()
    return None


def _sign_in(text: str) -> Problem:
    return Problem(401, text, headers={"WWW-Authenticate": 'Basic realm="mq9"'})


def _basic(given: str) -> tuple[str, str]:
    kind, _, encoded = given.partition(" ")
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        text = ""
    user, colon, password = text.partition(":")
    if kind.lower() != "basic" or not colon or not user:
        raise _sign_in("expected a user and a password (Basic)")
    return user, password


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def peer(request: Request) -> str:
    """The address that a request comes from."""
    return request.client.host if request.client else ""
