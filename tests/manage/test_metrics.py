"""What an operator needs is at /metrics of a real broker, and says what happened there."""

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from tests.manage.conftest import Manage, Managed
from tests.peers import until

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]

# What is asked of it, and the series that answer.
NEEDED = {
    "rates": ("mq9_sent_total", "mq9_delivered_total", "mq9_acked_total", "mq9_nats_in_msgs_total"),
    "depth": ("mq9_messages", "mq9_mailbox_messages"),
    "oldest age": ("mq9_mailbox_oldest_seconds", "mq9_group_oldest_seconds"),
    "lag": ("hanzo_mq_consumer_lag", "hanzo_mq_pending_count"),
    "leases": ("mq9_in_flight", "mq9_group_leases"),
    "dead letters": ("mq9_dead_letters", "hanzo_mq_dead_letter_total", "mq9_group_dead_total"),
    "sync latency": ("mq9_sync_seconds_bucket", "mq9_sync_seconds_sum", "mq9_sync_seconds_count"),
    "commit latency": ("mq9_commit_seconds_bucket", "mq9_commit_seconds_count"),
    "log bytes and segments": ("mq9_log_bytes", "mq9_live_bytes", "mq9_log_segments"),
    "checkpoint age": ("mq9_checkpoint_age_seconds", "mq9_checkpoint_bytes"),
    "damage": ("mq9_damage", "mq9_writes_stopped"),
    "connections": ("mq9_connections", "hanzo_mq_connections_active"),
    "slow consumers": ("mq9_slow_consumers_total",),
    "registry": ("mq9_agents", "mq9_registry_bytes", "mq9_registry_unread"),
    "export lag": ("mq9_export_lag_seconds",),
    "build info": ("mq9_build_info",),
}


def scrape(managed: Managed) -> Samples:
    with managed.client() as client:
        answer = client.get("/metrics")
    assert answer.status_code == 200
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def work(managed: Managed) -> None:
    """A bit of everything that is counted."""
    with managed.mail() as mail:
        mail.done("MAILBOX.CREATE", {"name": "jobs", "dead_letter": "jobs.dead"})
        for _ in range(40):
            mail.deliver("jobs", b"x" * 100_000)
        for number, entry in enumerate(mail.fetch("jobs", "workers", num_msgs=10)):
            if number < 7:
                fields = {"kind": "term"} if number < 2 else {}
                mail.ack("jobs", "workers", entry["msg_id"], **fields)
        mail.done("MAILBOX.CREATE", {"name": "agent.1"})
        mail.done("AGENT.REGISTER", {"name": "One", "description": "Reads", "mailbox": "agent.1"})


def test_all_that_an_operator_needs_is_there_and_true(manage: Manage, tmp_path: Path) -> None:
    more = f'export {{ dir: "{tmp_path / "export"}", every: "100ms" }}\ncheckpoint_size: 1MB'
    managed = manage(inside=more)
    work(managed)

    def settled() -> Samples:
        samples = scrape(managed)
        names = {name for name, _ in samples}
        told = names.issuperset(name for wanted in NEEDED.values() for name in wanted)
        rest = frozenset({("stream", "jobs"), ("consumer", "workers")})
        return samples if told and samples.get(("hanzo_mq_acked_total", rest)) == 5 else {}

    try:
        samples = until(settled, "all of it is told", 60)
    except TimeoutError:
        names = {name for name, _ in scrape(managed)}
        missing = {
            what: [name for name in wanted if name not in names] for what, wanted in NEEDED.items()
        }
        raise AssertionError({what: names for what, names in missing.items() if names}) from None
    group = {"stream": "jobs", "consumer": "workers"}
    assert value(samples, "hanzo_mq_consumer_lag", **group) == 30
    assert value(samples, "mq9_group_leases", **group) == 3
    assert value(samples, "mq9_group_dead_total", **group) == 2
    assert value(samples, "mq9_agents") == 1
    assert 0 <= value(samples, "mq9_group_oldest_seconds", **group) < 600


def buckets(samples: Samples, name: str) -> list[float]:
    found = {
        float(dict(labels)["le"]): count
        for (each, labels), count in samples.items()
        if each == f"{name}_bucket"
    }
    return [count for _, count in sorted(found.items())]


def test_latencies_count_every_reply_and_every_sync(manage: Manage) -> None:
    managed = manage()
    with managed.mail() as mail:
        mail.done("MAILBOX.CREATE", {"name": "a"})

        def told() -> Samples:
            samples = scrape(managed)
            return samples if ("mq9_commit_seconds_count", frozenset()) in samples else {}

        before = until(told, "there are latencies")
        for _ in range(50):
            mail.deliver("a", b"x")
        wanted = value(before, "mq9_commit_seconds_count") + 50

        def counted() -> Samples:
            samples = scrape(managed)
            return samples if value(samples, "mq9_commit_seconds_count") >= wanted else {}

        after = until(counted, "each SEND is counted")
    assert value(after, "mq9_commit_seconds_count") == wanted, "and nothing else"
    assert value(after, "mq9_sync_seconds_count") > value(before, "mq9_sync_seconds_count")
    for name in ("mq9_commit_seconds", "mq9_sync_seconds"):
        cumulative = buckets(after, name)
        assert len(cumulative) == 42
        assert cumulative == sorted(cumulative)
        assert cumulative[-1] == value(after, f"{name}_count")
    # Each of them waited for at least one sync, which was made before its reply.
    assert value(after, "mq9_commit_seconds_sum") > 0
    with managed.client() as client:

        def shown() -> bool:
            numbers = client.get("/v1/overview").json()["numbers"]
            return numbers["commit_p99"] is not None and numbers["sync_p99"] is not None

        with managed.mail() as mail:

            def while_busy() -> bool:
                mail.deliver("a", b"x")
                return shown()

            until(while_busy, "the page has them", 30)
        numbers = client.get("/v1/overview").json()["numbers"]
    assert 0 < numbers["commit_p50"] <= numbers["commit_p99"]
    assert 0 < numbers["sync_p50"] <= numbers["sync_p99"]


def test_queues_and_groups_that_are_named_have_series_however_little_they_do(
    manage: Manage,
) -> None:
    """Or the workers of a quiet queue are not scaled up, and its backlog alarms nobody."""
    found = manage(more='series: ["workers", "quiet"]')
    with found.mail() as mail, found.client() as client:
        for name, group in (("slow", "workers"), ("quiet", "readers"), ("other", "others")):
            mail.done("MAILBOX.CREATE", {"name": name})
            mail.deliver(name, b"x")
            mail.fetch(name, group)
        for number in range(600):
            mail.done("MAILBOX.CREATE", {"name": f"busy.{number}"})
            for _ in range(2):
                mail.publish(f"$mq9.AI.MSG.SEND.busy.{number}", b"x")
            mail.fetch(f"busy.{number}", "g", num_msgs=2)

        def followed() -> bool:
            listed = client.get("/v1/consumers", params={"limit": 1}).json()
            pending = client.get("/v1/consumers?sort=-pending&limit=4").json()["consumers"]
            return bool(listed["total"] == 603 and pending[3]["pending"] == 2)

        until(followed, "all are known", 60)
        text = client.get("/metrics").text
    for series in (
        'hanzo_mq_pending_count{consumer="workers",stream="slow"} 1.0',
        'hanzo_mq_pending_count{consumer="readers",stream="quiet"} 1.0',
        'mq9_mailbox_messages{mailbox="quiet"} 1.0',
    ):
        assert text.count(series) == 1, series
    assert 'consumer="others"' not in text
    assert text.count("hanzo_mq_pending_count{") == 502
    assert text.count("mq9_mailbox_messages{") == 301
