"""The nats-servers that keep a cluster's log, as their monitoring ports describe them.

Clients of a nats-server cannot see how it syncs: it is asked over HTTP, if the configuration says
where.
"""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING

from mq9.server.running import StartError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mq9.server.logs import Log

_TIMEOUT_S = 2.0
_MOST_BYTES = 1 << 20
_WHY = "a power cut of all machines may lose what was confirmed"


def check_sync(monitors: Sequence[str], log: Log) -> None:
    """Refuse servers that confirm what they have not synced; warn where it cannot be seen."""
    if not monitors:
        log.warn(
            "Cluster: mq9 cannot see whether its nats-servers have sync_interval: always; "
            f"without it {_WHY}. Give their monitoring addresses as monitors to have it checked"
        )
    for url in monitors:
        try:
            always = _syncs_always(url)
        except (OSError, ValueError) as error:
            log.warn(f"Cluster: {url} does not say how it syncs: {error}")
            continue
        if not always:
            raise StartError(
                f"the nats-server at {url} confirms messages before they are synced: {_WHY}. "
                "Set jetstream { sync_interval: always } there and restart it"
            )


def _syncs_always(url: str) -> bool:
    with urllib.request.urlopen(f"{url.rstrip('/')}/varz", timeout=_TIMEOUT_S) as answer:
        found = json.loads(answer.read(_MOST_BYTES))
    config = found.get("jetstream", {}).get("config") if isinstance(found, dict) else None
    if not isinstance(config, dict):
        raise ValueError("it has no JetStream")
    return config.get("sync_always") is True
