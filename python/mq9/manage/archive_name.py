"""The name of a broker in a database of dead letters, which others may use as well.

Owns which store has which name. The first broker without a name is `mq9`, as all were once; each
other one is called after its store, and so after a restart again.
"""

import logging
from typing import Any

_LOG = logging.getLogger("mq9.manage")
FIRST = "mq9"
TABLE = """
CREATE TABLE IF NOT EXISTS mq9_dead_letter_brokers (
    broker TEXT PRIMARY KEY,
    store  TEXT NOT NULL
);
"""
_CLAIM = "INSERT INTO mq9_dead_letter_brokers (broker, store) VALUES ($1, $2) ON CONFLICT"
_OWNER = "SELECT store FROM mq9_dead_letter_brokers WHERE broker = $1"


async def name_of(connection: Any, wanted: str, store: str) -> str:  # noqa: ANN401
    """What the broker of this store is called; `wanted` if it was given a name."""
    name = wanted or FIRST
    if not store:
        # An older broker does not say which store it has.
        return name
    if wanted:
        owner = await connection.fetchval(_OWNER, name)
        if owner not in (None, store):
            _LOG.warning(
                "dead letters were copied here as %r by another broker; "
                "brokers that share a database need different names",
                name,
            )
        await connection.execute(f"{_CLAIM} (broker) DO UPDATE SET store = $2", name, store)
        return name
    await connection.execute(f"{_CLAIM} DO NOTHING", name, store)
    owner = await connection.fetchval(_OWNER, name)
    return name if owner == store else f"{FIRST}-{store}"
