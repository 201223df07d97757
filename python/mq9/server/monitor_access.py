"""Access to the monitoring port: no foreign web page, and only users if one is configured.

A browser asks for whatever a page tells it to, also on this machine, where no firewall stands
before the port. But it tells the truth about the name that the page asked for, and about where the
page is from.
"""

import base64
import binascii
from collections.abc import Collection
from urllib.parse import urlsplit

from mq9.config import Options
from mq9.server.hash_queue import CrowdedError
from mq9.server.http_server import Request, Response
from mq9.server.info import is_loopback
from mq9.server.passwords import Passwords, bcrypt_cost

_ASK = (("WWW-Authenticate", 'Basic realm="mq9 monitoring", charset="UTF-8"'),)


async def refusal(
    options: Options, passwords: Passwords, request: Request, *, secret: bool
) -> Response | None:
    """What is answered to a request that is not allowed; `secret` is what takes a password."""
    if is_loopback(request.local_ip):
        names = {options.http_host or options.host, *options.monitoring.hosts}
        if wrong := _stranger(request, {name.lower() for name in names}):
            text = (
                f"{wrong}. On a loopback address, monitoring answers to localhost, to addresses of "
                "that interface, and to the names in `mq9 { monitoring { hosts: [...] } }`.\n"
            )
            return Response(text.encode("utf-8", "replace"), status=403)
    if secret and options.monitoring.user is not None:
        stored = options.monitoring.password or ""
        if not await _is_user(passwords, options.monitoring.user, stored, request):
            return Response(b"user and password are needed\n", status=401, headers=_ASK)
    return None


def _stranger(request: Request, names: Collection[str]) -> str:
    if request.host is not None and not _is_local(_name(f"//{request.host}"), names):
        return f"the host name {request.host!r} is not this server's"
    if request.origin is not None and not _is_local(_name(request.origin), names):
        return f"pages of {request.origin!r} may not read this"
    return ""


def _name(url: str) -> str:
    """The host in a URL, in lower case; empty if it is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_local(name: str, names: Collection[str]) -> bool:
    if name in names or name in {"localhost", "::1"}:
        return True
    # An address, not a name that begins like one.
    return is_loopback(name) and all(part.isascii() and part.isdigit() for part in name.split("."))


async def _is_user(passwords: Passwords, user: str, stored: str, request: Request) -> bool:
    given_user, given = _credentials(request.authorization or "")
    known = passwords.compare(user, given_user)
    good = passwords.compare(stored, given)
    cost = bcrypt_cost(stored)
    if good is None and cost is not None:
        try:
            good = await passwords.compare_hash(
                stored,
                given,
                cost=cost,
                user=given_user,
                address=request.ip,
                known=bool(known),
            )
        except CrowdedError:
            return False
    return bool(known and good)


def _credentials(header: str) -> tuple[str, str]:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        decoded = base64.b64decode(encoded.strip(), validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return "", ""
    user, _, password = decoded.partition(":")
    return user, password
