"""Streams, consumers and queues of the configuration: the document's words, and what is refused."""

import json
from typing import Any

import pytest

from mq9.config import ConfigError, Options, loads

# As the document has it, in the syntax of the file.
DOCUMENT = """
mq9 {
  streams: [
    { name: HANZO_MQ
      subjects: [ "mq.>" ]
      retention: WorkQueuePolicy
      max_msgs: 10_000_000
      max_bytes: 10_737_418_240
      max_age: 86400s
      max_msg_size: 1_048_576
      storage: file
      num_replicas: 1
      duplicate_window: 120s
      discard: old }
  ]
  consumers: [
    { name: inference-workers
      durable: inference-workers
      filter_subject: "mq.inference.>"
      ack_policy: explicit
      ack_wait: 30s
      max_deliver: 3
      max_ack_pending: 1000
      deliver_policy: all }
    { name: finetune-workers
      durable: finetune-workers
      filter_subject: "mq.batch.finetune"
      ack_policy: explicit
      ack_wait: 3600s
      max_deliver: 2
      max_ack_pending: 10
      deliver_policy: all }
  ]
  queues: [
    { queue: batch.embeddings, subject: mq.batch.embeddings
      max_deliver: 5, ack_wait: 300s, dlq: Yes
      producers: "Cloud API", consumers: "Embedding Workers", group: embedding-workers }
    { queue: dead_letter, subject: "mq.dlq.>", max_deliver: 1, ack_wait: "-", dlq: No }
  ]
}
"""
SECOND = 10**9


def consumers(options: Options) -> dict[tuple[str, str], Any]:
    return {(each.stream, each.name): json.loads(each.config) for each in options.consumers}


def test_the_documents_own_declarations() -> None:
    options = loads(DOCUMENT, {})
    assert (options.jetstream, options.warnings) == (True, ())
    [stream] = options.streams
    assert json.loads(stream.config) == {
        "name": "HANZO_MQ",
        "subjects": ["mq.>"],
        "retention": "workqueue",
        "max_msgs": 10_000_000,
        "max_bytes": 10_737_418_240,
        "max_age": 86_400 * SECOND,
        "max_msg_size": 1_048_576,
        "storage": "file",
        "num_replicas": 1,
        "duplicate_window": 120 * SECOND,
        "discard": "old",
    }
    found = consumers(options)
    assert [stream for stream, _ in found] == ["HANZO_MQ"] * 4
    assert found["HANZO_MQ", "inference-workers"] == {
        "name": "inference-workers",
        "durable_name": "inference-workers",
        "filter_subject": "mq.inference.>",
        "ack_policy": "explicit",
        "ack_wait": 30 * SECOND,
        "max_deliver": 3,
        "max_ack_pending": 1000,
        "deliver_policy": "all",
    }
    assert found["HANZO_MQ", "embedding-workers"] == {
        "name": "embedding-workers",
        "durable_name": "embedding-workers",
        "description": "queue batch.embeddings",
        "filter_subject": "mq.batch.embeddings",
        "ack_policy": "explicit",
        "ack_wait": 300 * SECOND,
        "max_deliver": 5,
        "metadata": {"mq9.dead_letter_prefix": "mq.dlq"},
    }
    # Its name cannot have a dot: the rest of it can.
    letters = found["HANZO_MQ", "dead_letter"]
    assert ("metadata" in letters, letters["ack_wait"], letters["max_deliver"]) == (False, 0, 1)


def test_what_mq9_adds() -> None:
    options = loads(
        "mq9 { streams: [\n"
        '{ name: "MQ", priority: no, envelope: yes, metadata { owner: "me" } },\n'
        '{ name: "URGENT", retention: workqueue, priority: yes } ]\n'
        'consumers: [ { name: "c", stream: MQ, backoff: ["1s", "500ms"], dlq: "dead" } ]\n'
        'queues: [ { name: "x.y", stream: "OTHER", subject: "a" } ]\n'
        "scheduled_jobs: [\n"
        '{ name: "s", subject: "MQ", cron: "* * * * *", data: {}, envelope: yes } ] }',
        {},
    )
    assert json.loads(options.streams[0].config)["metadata"] == {
        "owner": "me",
        "mq9.envelope": "hanzo.mq.v1",
    }
    assert json.loads(options.streams[1].config)["metadata"] == {"mq9.priority": "true"}
    found = consumers(options)
    assert found["MQ", "c"]["backoff"] == [SECOND, SECOND // 2]
    assert found["MQ", "c"]["metadata"] == {"mq9.dead_letter_prefix": "dead"}
    assert found["OTHER", "x-y"]["filter_subject"] == "a"
    assert options.schedules[0].envelope


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('streams: [ { subjects: ["a"] } ]', "no name"),
        ('streams: [ { name: "a b" } ]', "without blanks"),
        ('streams: [ { name: "A", retention: "forever" } ]', "one of limits, interest, workqueue"),
        ('streams: [ { name: "A", max_msgs: "ten" } ]', "a whole number"),
        ('streams: [ { name: "A", max_age: 5 } ]', 'a duration such as "30s"'),
        ('streams: [ { name: "A", subject: "a" } ]', "did you mean 'subjects'"),
        ('streams: [ { name: "A", priority: yes } ]', "mq9.priority needs retention workqueue"),
        (
            'streams: [ { name: "A", metadata { "mq9.priority": "9" } } ]',
            "mq9.priority must be true, or left out",
        ),
        ('streams: [ { name: "A", envelope: "v7" } ]', "yes, no or hanzo.mq.v1"),
        ('streams: [ { name: "A", num_replicas: 3 } ]', "replicas > 1 not supported"),
        ('streams: [ { name: "A" }, { name: "A" } ]', "another stream of this name"),
        (
            'streams: [ { name: "A", subjects: ["a.>"] }, { name: "B", subjects: ["a.b"] } ]',
            "text:1:52: stream B: a.b overlaps with a.> of stream A",
        ),
        ('consumers: [ { name: "c" } ]', "no declared stream stores anything"),
        ('streams: [ { name: "A" } ]\nconsumers: [ { stream: "A" } ]', "no name"),
        (
            'streams: [ { name: "A" } ]\nconsumers: [ { name: "c", filter_subject: "b" } ]',
            "no declared stream stores b",
        ),
        (
            'streams: [ { name: "A", retention: "workqueue", subjects: ["a.>"] } ]\n'
            'consumers: [ { name: "c", filter_subject: "a.>" } ]\n'
            'queues: [ { name: "q", subject: "a.b" } ]',
            r"text:3:11: consumer q: on a work queue .* a.b overlaps with a.> of c",
        ),
        (
            'streams: [ { name: "A", retention: "workqueue" } ]\n'
            'consumers: [ { name: "c", ack_policy: "none" } ]',
            "requires explicit ack policy",
        ),
        ('consumers: [ { name: "a", durable: "b", stream: "A" } ]', "two names"),
        ('queues: [ { name: "q" } ]', "name and subject"),
        ('queues: [ { name: "q", subject: "a", dlq: "a.*" } ]', "what subjects begin with"),
        ('schedules: [ { name: "s", subject: "a", cron: "* * * * *", envelope: yes } ]', "block"),
    ],
)
def test_what_cannot_be_made_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        loads(f"mq9 {{ {text} }}", {})


def test_what_is_declared_is_served() -> None:
    with pytest.raises(ConfigError, match="text:2:1: JetStream is disabled"):
        loads('jetstream: disabled\nmq9 { streams: [ { name: "A" } ] }', {})
