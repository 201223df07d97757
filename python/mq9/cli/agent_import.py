"""A2A cards from elsewhere: a file, a URL, or an agent that publishes its card where A2A says."""

import json
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from mq9.cli.exits import UNREACHABLE, USAGE, Failure

_WELL_KNOWN = ("/.well-known/agent-card.json", "/.well-known/agent.json")
_MAX_BYTES = 1 << 20


def read_a2a_card(source: str, timeout_s: float) -> dict[str, Any]:
    """The card at a URL or in a file; of a bare host, the one that it publishes."""
    if not source.startswith(("http://", "https://")):
        return _parsed(_from_file(source), source)
    parts = urllib.parse.urlsplit(source)
    if parts.path not in ("", "/"):
        return _parsed(_fetched(source, timeout_s), source)
    for path in _WELL_KNOWN:
        url = urllib.parse.urlunsplit((parts.scheme, parts.netloc, path, "", ""))
        try:
            return _parsed(_fetched(url, timeout_s), url)
        except _MissingError:
            continue
    raise Failure(f"{source} has no card at {' or '.join(_WELL_KNOWN)}")


class _MissingError(Failure):
    """There is nothing at a URL."""


def _from_file(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise Failure(f"cannot read {name}: {error.strerror}", USAGE) from error


def _fetched(url: str, timeout_s: float) -> bytes:
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as response:
            data: bytes = response.read(_MAX_BYTES + 1)
    except urllib.error.HTTPError as error:
        error.close()
        kind = _MissingError if error.code in (404, 410) else Failure
        raise kind(f"{url} answers {error.code} {error.reason}") from error
    except (OSError, ValueError) as error:
        raise Failure(f"cannot fetch {url}: {error}", UNREACHABLE) from error
    if len(data) > _MAX_BYTES:
        raise Failure(f"{url} is larger than {_MAX_BYTES} bytes: no card is")
    return data


def _parsed(data: bytes, where: str) -> dict[str, Any]:
    try:
        card = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Failure(f"{where} is no JSON: {error}") from error
    if not isinstance(card, dict):
        raise Failure(f"{where} is no card: expected a JSON object")
    return card
