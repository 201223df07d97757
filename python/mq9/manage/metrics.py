"""`/metrics` for Prometheus: the names of the document (`hanzo_mq_*`) and mq9's own (`mq9_*`).

Owns names and labels. Series for single mailboxes are those of the busiest few hundred and of those
that are named, so that a million mailboxes are not a million series.
"""

import time
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from mq9 import __version__
from mq9.cluster.metrics import gauges
from mq9.manage.follower import Follower
from mq9.manage.rows import Group

MAX_QUEUES = 300
MAX_GROUPS = 500
_QUANTILES = (0.5, 0.95, 0.99)
_GROUP_LABELS = ("stream", "consumer")


def render(follower: Follower) -> bytes:
    """The document, in the text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Broker(follower))
    return generate_latest(registry)


class _Broker(Collector):
    def __init__(self, follower: Follower) -> None:
        self._follower = follower

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("mq9_up", "Whether the broker answers.")
        up.add_metric((), 0.0 if self._follower.gone_since is not None else 1.0)
        yield up
        build = GaugeMetricFamily("mq9_build_info", "The version.", labels=("version",))
        build.add_metric((__version__,), 1)
        yield build
        yield from self._archive()
        yield from self._schedules()
        yield from self._server()
        yield from self._latencies()
        yield from self._registry()
        yield from self._cluster()
        yield from self._totals()
        yield from self._queues()
        yield from self._groups()

    def _archive(self) -> Iterator[Metric]:
        archive = self._follower.archive
        if archive is None:
            return
        up = GaugeMetricFamily("mq9_archive_up", "Whether dead letters reach PostgreSQL.")
        up.add_metric((), 0.0 if archive.gone_since is not None else 1.0)
        yield up
        copied = CounterMetricFamily("mq9_archive_letters", "Dead letters copied to PostgreSQL.")
        copied.add_metric((), archive.copied)
        yield copied

    def _schedules(self) -> Iterator[Metric]:
        scheduler = self._follower.scheduler
        if scheduler is None:
            return
        fired = CounterMetricFamily("mq9_schedule_firings", "Schedules fired.")
        fired.add_metric((), scheduler.fired)
        yield fired
        late = GaugeMetricFamily("mq9_schedules_late", "Schedules that should have been fired.")
        late.add_metric((), sum(each.is_late for each in scheduler.progress))
        yield late

    def _server(self) -> Iterator[Metric]:
        varz = self._follower.server.get("varz", {})
        store = self._follower.server.get("store", {})
        disk = self._follower.server.get("disk", {})
        gone = max(varz.get("total_connections", 0) - varz.get("connections", 0), 0)
        gauges = {
            "hanzo_mq_connections_active": ("Clients that are connected.", varz.get("connections")),
            "mq9_connections": ("Clients that are connected.", varz.get("connections")),
            "mq9_subscriptions": ("Subscriptions.", varz.get("subscriptions")),
            "mq9_waiting_fetches": ("FETCHes that wait for messages.", store.get("waiting")),
            "mq9_memory_bytes": ("Memory of the broker.", varz.get("mem")),
            "mq9_log_bytes": ("Bytes of records in the log.", store.get("log_bytes")),
            "mq9_live_bytes": ("Of these, bytes still needed.", store.get("live_bytes")),
            "mq9_log_segments": ("Segment files.", store.get("segments")),
            "mq9_checkpoint_bytes": (
                "Size of the newest checkpoint.",
                store.get("checkpoint_bytes"),
            ),
            "mq9_checkpoint_age_seconds": (
                "Since the newest checkpoint; a restart reads what was written since.",
                _age(store.get("checkpoint_ms")),
            ),
            "mq9_export_lag_seconds": (
                "Since the export had all that there was.",
                _age(self._follower.server.get("exported_ms")),
            ),
            "mq9_damage": ("Places found damaged since the start.", len(store.get("damage", ()))),
            "mq9_writes_stopped": (
                "1 if nothing is stored.",
                int(bool(store.get("writes_stopped"))),
            ),
            "mq9_disk_free_bytes": ("Free bytes of the disk.", disk.get("free")),
            "mq9_disk_total_bytes": ("Bytes of the disk.", disk.get("total")),
            "mq9_mailboxes": (
                "Mailboxes.",
                self._follower.mirror.count - self._follower.mirror.streams,
            ),
            "mq9_streams": ("Streams.", self._follower.mirror.streams),
            "mq9_dead_letters": ("Dead letters not resolved.", self._follower.letters.count()),
        }
        for name, (text, value) in gauges.items():
            if value is not None:
                yield GaugeMetricFamily(name, text, value=float(value))
        counters = {
            "hanzo_mq_reconnections": ("Connections that ended, to come again or not.", gone),
            "mq9_connections_opened": ("Connections so far.", varz.get("total_connections")),
            "mq9_slow_consumers": ("Clients cut off as too slow.", varz.get("slow_consumers")),
            "mq9_nats_in_msgs": ("Messages from clients.", varz.get("in_msgs")),
            "mq9_nats_out_msgs": ("Messages to clients.", varz.get("out_msgs")),
            "mq9_nats_in_bytes": ("Bytes from clients.", varz.get("in_bytes")),
            "mq9_nats_out_bytes": ("Bytes to clients.", varz.get("out_bytes")),
            "mq9_refused": ("Requests without reply refused.", varz.get("mq9", {}).get("refused")),
        }
        for name, (text, value) in counters.items():
            if value is not None:
                yield CounterMetricFamily(name, text, value=float(value))

    def _latencies(self) -> Iterator[Metric]:
        told = self._follower.server.get("latency")
        if not told:
            return
        for kind, text in (
            ("sync", "Syncs of the log to the disk."),
            ("commit", "From carrying out a SEND, FETCH or ACK to what it promises being durable."),
        ):
            buckets, seen = [], 0
            bounds = [*(str(us / 1e6) for us in told["bounds_us"]), "+Inf"]
            for bound, count in zip(bounds, told[kind]["counts"], strict=True):
                seen += count
                buckets.append((bound, float(seen)))
            family = HistogramMetricFamily(f"mq9_{kind}_seconds", text)
            family.add_metric((), buckets, told[kind]["sum_us"] / 1e6)
            yield family

    def _registry(self) -> Iterator[Metric]:
        told = self._follower.server.get("registry") or {}
        for name, text in (
            ("agents", "Agents that are registered."),
            ("bytes", "Bytes of their cards and reports."),
            ("unread", "Cards that the search was not told of yet."),
            ("set_aside", "Cards that could not be read."),
        ):
            if name in told:
                unit = "mq9_agents" if name == "agents" else f"mq9_registry_{name}"
                yield GaugeMetricFamily(unit, text, value=float(told[name]))

    def _cluster(self) -> Iterator[Metric]:
        health = self._follower.server.get("varz", {}).get("mq9", {}).get("cluster", {})
        for name, text, value in gauges(health):
            yield GaugeMetricFamily(name, text, value=value)

    def _totals(self) -> Iterator[Metric]:
        mirror = self._follower.mirror
        texts = {
            "sent": "Messages stored.",
            "delivered": "Messages given to groups.",
            "redelivered": "Messages given again.",
            "acked": "Messages acknowledged.",
            "returned": "Messages returned undone.",
        }
        for name, text in texts.items():
            yield CounterMetricFamily(f"mq9_{name}", text, value=float(mirror.totals[name]))
        depth = GaugeMetricFamily(
            "mq9_messages", "Messages in mailboxes, by priority.", labels=("priority",)
        )
        for at, count in enumerate(mirror.levels.tolist()):
            depth.add_metric((str(at + 1),), float(count))
        yield depth
        yield GaugeMetricFamily("mq9_delayed", "Messages not due.", value=mirror.totals["delayed"])
        yield GaugeMetricFamily(
            "mq9_in_flight", "Messages given out and not acknowledged.",
            value=mirror.totals["in_flight"],
        )  # fmt: skip

    def _queues(self) -> Iterator[Metric]:
        mirror = self._follower.mirror
        fields = {
            "depth": ("messages", "Messages of the busiest {}s."),
            "bytes": ("bytes", "Their bytes."),
            "oldest_s": ("oldest_seconds", "Age of their oldest message."),
        }
        families = {
            (kind, field): GaugeMetricFamily(
                f"mq9_{kind}_{name}", text.format(kind), labels=(kind,)
            )
            for kind in ("mailbox", "stream")
            for field, (name, text) in fields.items()
        }
        named = mirror.named(self._follower.series_of)
        for place in dict.fromkeys([*mirror.busiest(MAX_QUEUES), *named]):
            row = mirror.row(place)
            for field in fields:
                family = families[row.kind, field]
                family.add_metric((row.name,), float(getattr(row, field) or 0))
        yield from families.values()

    def _groups(self) -> Iterator[Metric]:
        dead = CounterMetricFamily(
            "hanzo_mq_dead_letter", "Messages given up.", labels=("original_subject",)
        )
        # The broker counts: groups come and go, and a counter must not fall.
        for origin, count in self._follower.server.get("dead", {}).items():
            dead.add_metric((origin,), count)
        yield dead
        chosen = self._chosen()
        yield self._of_groups(
            GaugeMetricFamily,
            "hanzo_mq_pending_count",
            "Messages not done: not given out yet, or not acknowledged.",
            [(group, group.pending) for group in chosen],
        )
        yield self._of_groups(
            GaugeMetricFamily,
            "hanzo_mq_consumer_lag",
            "Messages not given out yet.",
            [(group, group.lag) for group in chosen],
        )
        for name, text, field in (
            ("hanzo_mq_delivered", "Messages given out.", "delivered"),
            ("hanzo_mq_acked", "Messages acknowledged.", "acked"),
            ("hanzo_mq_nacked", "Messages returned undone.", "returned"),
            ("mq9_group_redelivered", "Messages given again.", "redelivered"),
            ("mq9_group_dead", "Messages given up.", "dead"),
        ):
            values = [(group, getattr(group, field)) for group in chosen]
            yield self._of_groups(CounterMetricFamily, name, text, values)
        yield self._of_groups(
            GaugeMetricFamily,
            "mq9_group_members",
            "Members that hold messages or wait for some.",
            [(group, group.members) for group in chosen],
        )
        yield self._of_groups(
            GaugeMetricFamily,
            "mq9_group_leases",
            "Messages given out and not acknowledged.",
            [(group, group.ack_pending) for group in chosen],
        )
        now = time.time()
        yield self._of_groups(
            GaugeMetricFamily,
            "mq9_group_oldest_seconds",
            "Age of the oldest message that is not done.",
            [(group, group.lag_s(now)) for group in chosen],
        )
        yield self._durations(chosen)

    def _chosen(self) -> list[Group]:
        """The busiest groups, those that are named, and those of queues that are."""
        mirror, names = self._follower.mirror, self._follower.series_of
        found = mirror.groups.busiest(MAX_GROUPS)
        for name in names:
            found += mirror.groups.named(name, "", 0, MAX_GROUPS)[0]
        for place in mirror.named(names):
            found += mirror.groups_of(place)[:MAX_GROUPS]
        return list({group.at: group for group in found}.values())

    def _of_groups(
        self,
        kind: "type[GaugeMetricFamily] | type[CounterMetricFamily]",
        name: str,
        text: str,
        values: Sequence[tuple[Group, float]],
    ) -> Metric:
        family = kind(name, text, labels=_GROUP_LABELS)
        for group, value in values:
            family.add_metric((self._label(group), group.name), float(value))
        return family

    def _durations(self, groups: list[Group]) -> Metric:
        family = Metric(
            "hanzo_mq_processing_duration_seconds",
            "From storing a message to its acknowledgement, of one message of each ACK.",
            "summary",
        )
        for group in groups:
            count = sum(group.durations)
            if not count:
                continue
            labels = {"stream": self._label(group), "consumer": group.name}
            for quantile in _QUANTILES:
                value = duration_quantile(group.durations, quantile)
                named = {**labels, "quantile": str(quantile)}
                family.add_sample("hanzo_mq_processing_duration_seconds", named, value)
            family.add_sample("hanzo_mq_processing_duration_seconds_count", labels, count)
            total = sum(number * _middle(at) for at, number in enumerate(group.durations))
            family.add_sample("hanzo_mq_processing_duration_seconds_sum", labels, total)
        return family

    def _label(self, group: Group) -> str:
        """The queue of a group: two of one name must not become one series."""
        mirror = self._follower.mirror
        is_shared = group.kind == "mailbox" and mirror.find(group.queue, "stream") is not None
        return f"$mailbox.{group.queue}" if is_shared else group.queue


def _age(moment_ms: int | None) -> float | None:
    return max(time.time() - moment_ms / 1000, 0.0) if moment_ms is not None else None


def duration_quantile(durations: list[int], quantile: float) -> float:
    """Seconds that this share stayed below; counts are by powers of two of a millisecond."""
    wanted = quantile * sum(durations)
    seen = 0
    for at, count in enumerate(durations):
        if count and seen + count >= wanted:
            low, high = (float(1 << at - 1) if at else 0.0), float(1 << at)
            return (low + (high - low) * (wanted - seen) / count) / 1000
        seen += count
    return 0.0


def _middle(at: int) -> float:
    return (0.75 * 2**at if at else 0.5) / 1000
