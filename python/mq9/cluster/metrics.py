"""Metrics of a node of a cluster, whether it leads or not."""

from collections.abc import Iterator, Mapping
from typing import Any

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def gauges(health: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    """Name, meaning and value of each; nothing on a server that stands alone."""
    if "role" not in health:
        return
    yield "mq9_cluster_leads", "Whether this node leads.", float(health["role"] == "leading")
    yield "mq9_cluster_stream_answers", "Whether the log's stream answers.", float(health["stream"])
    for name, text in (
        ("term", "The term of the last claim."),
        ("leader", "Number of the node that leads, 0 for none."),
        ("sequence", "The last message of the log that this node has."),
        ("lag", "Messages of the log that this node does not have yet."),
    ):
        if name in health:
            yield f"mq9_cluster_{name}", text, float(health[name])


def text(health: Mapping[str, Any]) -> bytes:
    """The same in the form that Prometheus reads."""
    lines = [
        f"# HELP {name} {meaning}\n# TYPE {name} gauge\n{name} {value:.0f}\n"
        for name, meaning, value in gauges(health)
    ]
    return "".join(lines).encode()
