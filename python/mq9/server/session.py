"""One client from INFO to its end: the decisions that the broker leaves to Python.

Owns handshake, authentication and what is known about the client. Sees no message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mq9.server import connect, nkeys
from mq9.server.auth import Authenticator, Credentials, Grant, HashNeeded
from mq9.server.clients import ClientFacts, ClosedClient, Figures
from mq9.server.clock import now_ms
from mq9.server.connect import ConnectError, ConnectOptions
from mq9.server.hash_queue import CrowdedError
from mq9.server.info import PROTOCOL, Peer, info_fields, info_line, is_loopback

if TYPE_CHECKING:
    import asyncio

    from mq9._core import Certificate, Connection
    from mq9.config import Tls
    from mq9.server.running import Running

_AUTHORIZATION_VIOLATION = "Authorization Violation"
_AUTHENTICATION_FAILURE = "Authentication Failure"
_AUTHENTICATION_TIMEOUT = "Authentication Timeout"


class Session:
    """What the broker asks about one connection, and what it reports of it."""

    stop_ms = None
    reason = ""
    last = Figures()

    def __init__(self, running: Running, ip: str, port: int) -> None:
        self._running = running
        self.facts = ClientFacts(ip, port, now_ms())
        authenticator = running.settings.authenticator
        self._nonce = nkeys.nonce() if authenticator.nonce_required else ""
        self._shown: Credentials | None = None
        self._certificate: Certificate | None = None
        self._deciding: asyncio.Task[None] | None = None
        # Without authorization a client is in before it has said anything.
        self.grant = None if authenticator.required else Grant("")
        self.connection: Connection = running.broker.connection(self)
        self.facts.cid = self.connection.cid
        running.clients.add(self)

    @property
    def is_local_operator(self) -> bool:
        """Where nobody has to authenticate, a client on the loopback interface is an operator.

        Another node may have handed it on, from anywhere, to one that others can reach.
        """
        running = self._running
        handed_on = running.reachable and running.options.replication is not None
        return running.settings.is_open and is_loopback(self.facts.ip) and not handed_on

    def admit(self, descriptor: int, *, paused: bool) -> None:
        """Hand the client's socket to the broker, which meets it; `paused` leaves it unread."""
        settings = self._running.settings
        tls = settings.options.tls
        awaited = settings.authenticator.credentials_required
        self._log("Client connection created")
        self.connection.adopt(
            descriptor,
            self._info(nonce=self._nonce),
            auth_required=self.grant is None,
            auth_timeout_ms=settings.auth_timeout_ms if awaited else None,
            tls=settings.tls,
            tls_first_ms=_first_ms(tls),
            tls_timeout_ms=tls.timeout_ms if tls is not None else 0,
            allow_non_tls=settings.options.allow_non_tls,
            paused=paused,
        )

    def on_secured(self, version: str, cipher: str, certificate: Certificate | None) -> None:
        """Client and broker have agreed on TLS."""
        self.facts.tls_version, self.facts.tls_cipher = version, cipher
        self._certificate = certificate

    def on_connect(self, options: bytes) -> None:
        """CONNECT has come: decide now, or later if that takes a hash."""
        try:
            said = connect.parse(options, self._shown.connect if self._shown else None)
        except ConnectError as error:
            self._running.log.error(f"CONNECT: {error}", **self.who())
            self.connection.close(None, "Protocol Violation")
            return
        self._running.log.trace("<<- [CONNECT]", options=repr(said), **self.who())
        facts = self.facts
        facts.name, facts.lang, facts.version = said.name, said.lang, said.version
        facts.protocol, facts.user = said.protocol, said.user
        self._shown = Credentials(said, self._nonce, self._certificate)
        authenticator = self._running.settings.authenticator
        decision = authenticator.check(self._shown)
        if isinstance(decision, HashNeeded):
            # Imported here: clients are greeted before there is an event loop.
            import asyncio

            self._deciding = asyncio.get_running_loop().create_task(
                self._settle(authenticator, decision, self._shown)
            )
        else:
            self._decided(decision, said)

    def on_first_command(self) -> None:
        """A client that should have said CONNECT did not."""
        self._decided(self._running.settings.authenticator.anonymous(), ConnectOptions())

    def on_closed(self, reason: str, detail: str | None) -> None:
        """The connection has ended; `detail` is what the system or the TLS library said of it."""
        if self._deciding is not None:
            self._deciding.cancel()
        self._log(f"Client connection closed: {reason}{f' ({detail})' if detail else ''}")
        left = ClosedClient(self.facts, Figures.of(self.connection.stats()), now_ms(), reason)
        self._running.clients.remove(self, left)

    def say_lame_duck(self) -> None:
        """Tell a client that understands it to look for another server."""
        if self.facts.protocol >= PROTOCOL:
            self.connection.send(self._info())

    def close(self, reason: str, error: str | None = None) -> None:
        """End the connection once its output is written."""
        self.connection.close(error, reason)

    def pause_reading(self) -> None:
        """Leave what the client says in the socket for a while."""
        self.connection.pause_reading()

    def resume_reading(self) -> None:
        """Listen to the client again."""
        self.connection.resume_reading()

    def abort(self) -> None:
        """End the connection now."""
        self.connection.abort()

    def reconsider(self) -> HashNeeded | None:
        """After a reload: a client stays if it would be let in now, with its new permissions.

        Where that takes a hash, its user's new permissions count until `reconsidered`.
        """
        authenticator = self._running.settings.authenticator
        if self.grant is None:
            # Not in yet: what it shows is judged by the new settings anyway.
            return None
        decision = authenticator.check(self._shown or Credentials(ConnectOptions()))
        if not isinstance(decision, HashNeeded):
            self.reconsidered(decision)
            return None
        if decision.grant is None:
            # The hash would only hide from strangers that there is no such user.
            self.reconsidered(None)
            return None
        self.reconsidered(decision.grant)
        return decision

    def reconsidered(self, grant: Grant | None) -> None:
        """It stays with this grant, or goes."""
        if grant is None:
            self._refuse()
            return
        self._granted(grant)
        self.connection.set_permissions(self._running.settings.permissions.of(grant.rules))

    async def _settle(
        self, authenticator: Authenticator, pending: HashNeeded, shown: Credentials
    ) -> None:
        decision: Grant | HashNeeded | None = pending
        while isinstance(decision, HashNeeded):
            try:
                decision = await authenticator.settle(decision, self.facts.ip)
            except CrowdedError:
                # Clients try again after this one; after a violation many give up.
                self._deciding = None
                self.connection.close(_AUTHENTICATION_TIMEOUT, _AUTHENTICATION_TIMEOUT)
                return
            if authenticator is not self._running.settings.authenticator:
                # A reload came in between: the old password must not open the door.
                authenticator = self._running.settings.authenticator
                decision = authenticator.check(shown)
        self._deciding = None
        self._decided(decision, shown.connect)

    def _decided(self, grant: Grant | None, said: ConnectOptions) -> None:
        if grant is None:
            self._refuse()
        elif said.protocol not in (0, PROTOCOL):
            self.connection.close("invalid client protocol", "Bad Client Protocol Version")
        elif said.no_responders and not said.headers:
            self.connection.close(
                "no responders requires headers support", "No Responders Requires Headers"
            )
        else:
            self._granted(grant)
            self.connection.accept(
                verbose=said.verbose,
                pedantic=said.pedantic,
                echo=said.echo,
                headers=said.headers,
                no_responders=said.no_responders,
                permissions=self._running.settings.permissions.of(grant.rules),
                # JSON can escape half of a surrogate pair.
                name=said.name.encode("utf-8", "replace").decode(),
                own=grant.own,
            )

    def _granted(self, grant: Grant) -> None:
        self.grant = grant
        self.facts.user = grant.user
        self._running.clients.set_own(self, grant.own)
        # A name that was not proven is nobody's.
        proven = self._running.settings.authenticator.required
        self.connection.set_user(grant.user if proven and grant.user else None)

    def _refuse(self) -> None:
        self._running.log.error("authentication error", **self.who())
        self.connection.close(_AUTHORIZATION_VIOLATION, _AUTHENTICATION_FAILURE)

    def _info(self, nonce: str = "") -> bytes:
        running = self._running
        return info_line(
            info_fields(
                running.identity,
                running.options,
                auth_required=running.settings.authenticator.credentials_required,
                peer=Peer(self.facts.cid, self.facts.ip, nonce),
                lame_duck=running.lame_duck,
            )
        )

    def _log(self, text: str) -> None:
        if self._running.log.debugging:
            self._running.log.debug(text, **self.who())

    def who(self) -> dict[str, object]:
        """What the log says of this client."""
        facts = self.facts
        host = f"[{facts.ip}]" if ":" in facts.ip else facts.ip
        who: dict[str, object] = {"client": f"{host}:{facts.port}", "cid": facts.cid}
        return who | {
            key: value for key in ("user", "name") if (value := getattr(facts, key)) != ""
        }


def _first_ms(tls: Tls | None) -> int | None:
    """How long a client may take that begins with TLS before INFO; None is for ever."""
    if tls is None or tls.handshake_first is False:
        return 0
    return None if tls.handshake_first is True else tls.handshake_first
