"""Schedules: what is due is sent, each time once, and what was missed once, late."""

import base64
import json
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.mail import Mail
from tests.manage.conftest import Managed, free_port, wait_healthy
from tests.peers import until
from tests.restarts import Restarting

from mq9.config import Schedule
from mq9.manage.scheduler import last_until, next_after

EVERY_MINUTE = (
    '{ name: "tick", mailbox: "ticks", cron: "* * * * *", data: { type: "probe", n: 1 } }'
)
FOLLOWED_S = 90.0


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


@pytest.mark.parametrize(
    ("cron", "zone", "moment", "before", "after"),
    [
        ("*/5 * * * *", "UTC", "12:02:30", "12:00:00", "12:05:00"),
        ("*/5 * * * *", "UTC", "12:05:00", "12:05:00", "12:10:00"),
        ("0 2 * * *", "UTC", "12:00:00", "02:00:00", None),
        ("30 14 * * *", "Asia/Kolkata", "12:00:00", "09:00:00", None),
    ],
)
def test_times(cron: str, zone: str, moment: str, before: str, after: str | None) -> None:
    schedule = Schedule(name="a", cron=cron, timezone=zone, mailbox="m")
    now = at(f"2026-11-18T{moment}+00:00")
    assert last_until(schedule, now) == at(f"2026-11-18T{before}+00:00")
    if after is not None:
        assert next_after(schedule, now) == at(f"2026-11-18T{after}+00:00")


def test_an_hour_that_comes_twice_fires_once() -> None:
    schedule = Schedule(name="a", cron="30 2 * * *", timezone="Europe/Berlin", mailbox="m")
    first = next_after(schedule, at("2026-10-24T12:00:00+00:00"))
    assert first is not None
    second = next_after(schedule, first)
    assert (first, second) == (at("2026-10-25T00:30:00+00:00"), at("2026-10-26T01:30:00+00:00"))


Start = Callable[..., tuple[Restarting, str]]


@pytest.fixture
def start(tmp_path: Path) -> Any:  # noqa: ANN401
    """A broker with a management process that knows no schedule yet."""
    running = []

    def started() -> tuple[Restarting, str]:
        listen = free_port()
        block = f'mq9 {{ management {{ listen: "127.0.0.1:{listen}" }}\n}}\n'
        broker = Restarting(tmp_path, f"jetstream {{ }}\n{block}")
        running.append(broker)
        url = f"http://127.0.0.1:{listen}"
        wait_healthy(Managed(broker.server, url, Path()))
        return broker, url

    yield started
    for broker in running:
        broker.stop()


def schedule(broker: Restarting, *entries: str) -> None:
    """Restarts the broker with schedules."""
    head = broker.config.removesuffix("}\n")
    broker.config = f"{head}schedules: [ {', '.join(entries)} ]\n}}\n"
    broker.restart()


def note(mail: Mail, name: str, cron: str, due: int) -> None:
    fields = {"name": name, "spec": f"{cron} UTC", "due": due, "fired": due}
    mail.done("ADMIN.SCHEDULE.NOTE", fields)


def asked(mail: Mail, subject: str, request: object) -> Any:  # noqa: ANN401
    """The answer to a request at a full subject."""
    reply = f"{mail.inbox}.js"
    mail.publish(subject, request, reply=reply)
    return mail.answer(reply)


def dues(broker: Restarting, address: str) -> list[str]:
    with broker.connect() as mail:
        entries = mail.done(f"MSG.QUERY.{address}", {})["messages"]
    return [entry["headers"]["mq9-schedule-due"][0] for entry in entries]


def test_what_was_missed_is_sent_once_and_then_each_minute(start: Start) -> None:
    broker, url = start()
    with broker.connect() as mail:
        mail.done("MAILBOX.CREATE", {"name": "ticks"})
        note(mail, "tick", "* * * * *", int(time.time()) - 600)
    schedule(broker, EVERY_MINUTE)
    until(lambda: dues(broker, "ticks"), "the missed one is sent", FOLLOWED_S)
    until(lambda: len(dues(broker, "ticks")) == 2, "the next minute is sent", FOLLOWED_S)
    missed, following = map(at, dues(broker, "ticks"))
    assert missed % 60 == 0
    assert following == missed + 60
    with broker.connect() as mail:
        entry = mail.done("MSG.QUERY.ticks", {})["messages"][0]
    assert entry["payload"] == '{"type":"probe","n":1}'
    assert entry["headers"]["mq9-schedule"] == ["tick"]
    [row] = httpx.get(f"{url}/v1/schedules", timeout=20).json()["schedules"]
    assert (row["name"], row["target"], row["late"]) == ("tick", "ticks", False)
    assert row["due"] > row["fired"] >= missed


def test_a_crash_between_sending_and_noting_sends_nothing_twice(start: Start) -> None:
    broker, _ = start()
    with broker.connect() as mail:
        mail.done("MAILBOX.CREATE", {"name": "ticks"})
        note(mail, "tick", "* * * * *", int(time.time()) - 600)
    schedule(broker, EVERY_MINUTE)
    until(lambda: dues(broker, "ticks"), "the missed one is sent", FOLLOWED_S)
    for _ in range(3):
        with broker.connect() as mail:
            # As if the process had died before it noted what it has sent.
            note(mail, "tick", "* * * * *", int(time.time()) - 600)
        broker.restart(kill=True)

        def noted() -> bool:
            with broker.connect() as mail:
                [told] = mail.done("ADMIN.SCHEDULE.LIST", {})["schedules"]
            return int(told["due"]) > time.time() - 150

        until(noted, "it has been sent again", FOLLOWED_S)
        found = dues(broker, "ticks")
        assert len(set(found)) == len(found)


@pytest.mark.parametrize("to", [{"mailbox": "ticks"}, {"subject": "mq.tick"}])
def test_a_firing_whose_reply_was_lost_is_not_stored_again_after_the_window(
    start: Start, to: dict[str, str]
) -> None:
    broker, _ = start()
    ids = {"mq9-id": "schedule.tick.60", "Nats-Msg-Id": "schedule.tick.60"}
    firing = {"name": "tick", "spec": "* * * * * UTC", "due": 60, "headers": ids, **to}

    def stored(mail: Mail) -> Any:  # noqa: ANN401
        if "mailbox" in to:
            return len(mail.done("MSG.QUERY.ticks", {})["messages"])
        return asked(mail, "$JS.API.STREAM.INFO.MQ", {})["state"]["messages"]

    with broker.connect() as mail:
        mail.done("MAILBOX.CREATE", {"name": "ticks", "dedup_window": 1})
        window = {"name": "MQ", "subjects": ["mq.>"], "duplicate_window": 10**9}
        assert "error" not in asked(mail, "$JS.API.STREAM.CREATE.MQ", window)
        assert mail.done("ADMIN.SCHEDULE.FIRE", firing)["duplicate"] is False
        assert stored(mail) == 1
    broker.restart(kill=True)
    time.sleep(1.1)
    with broker.connect() as mail:
        # Control: the id is forgotten, so that it is not what keeps the firing from being stored.
        later = {**firing, "name": "tock"}
        assert mail.done("ADMIN.SCHEDULE.FIRE", firing)["duplicate"] is True
        assert stored(mail) == 1
        assert mail.done("ADMIN.SCHEDULE.FIRE", later)["duplicate"] is False
        assert stored(mail) == 2
        # What comes next is another one, and so is what other times are given.
        assert mail.done("ADMIN.SCHEDULE.FIRE", {**firing, "due": 120})["duplicate"] is False
        notes = mail.done("ADMIN.SCHEDULE.LIST", {})["schedules"]
        assert {note["name"]: (note["due"], note["fired"]) for note in notes} == {
            "tick": (120, 120),
            "tock": (60, 60),
        }


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": ""}, "name must have"),
        ({"due": None}, "due is missing"),
        ({"subject": "mq.tick"}, "either mailbox, or subject"),
        ({"mailbox": None}, "either mailbox, or subject"),
        ({"mailbox": "$schedules"}, "invalid mail_address"),
        ({"mailbox": "no.such"}, "mailbox no.such does not exist"),
        ({"mailbox": None, "subject": "$JS.API.INFO"}, "one of a stream"),
        ({"mailbox": None, "subject": "no.stream"}, "no stream has the subject no.stream"),
        ({"headers": {"a": "b\r\nmq9-dead-reason: x"}}, "header"),
    ],
)
def test_a_firing_that_is_refused_is_not_noted(
    start: Start, fields: dict[str, Any], said: str
) -> None:
    broker, _ = start()
    with broker.connect() as mail:
        mail.done("MAILBOX.CREATE", {"name": "ticks"})
        firing = {"name": "tick", "due": 60, "mailbox": "ticks", "headers": {"mq9-id": "x"}}
        assert said in mail.ask("ADMIN.SCHEDULE.FIRE", {**firing, **fields})["error"]
        assert mail.done("ADMIN.SCHEDULE.LIST", {})["schedules"] == []
        assert mail.done("MSG.QUERY.ticks", {})["messages"] == []


def test_a_subject_of_a_stream_and_failures_that_are_told(start: Start) -> None:
    broker, url = start()
    with broker.connect() as mail:
        hour_ago = int(time.time()) - 3600
        note(mail, "report", "*/7 * * * *", hour_ago)
        note(mail, "nowhere", "*/7 * * * *", hour_ago)
        note(mail, "lost", "*/7 * * * *", hour_ago)
    schedule(
        broker,
        '{ name: "report", subject: "mq.scheduled.report", cron: "*/7 * * * *", payload: "go" }',
        '{ name: "nowhere", subject: "no.stream", cron: "*/7 * * * *" }',
        '{ name: "lost", mailbox: "no.such", cron: "*/7 * * * *" }',
    )

    def problems() -> dict[str, str]:
        try:
            rows = httpx.get(f"{url}/v1/schedules", timeout=20).json()["schedules"]
        except httpx.TransportError:
            return {}
        found = {row["name"]: row["problem"] for row in rows}
        return found if all(found.values()) and len(found) == 3 else {}

    found = until(problems, "it is told why nothing is sent", FOLLOWED_S)
    assert found["lost"] == "mailbox no.such does not exist"
    assert "no.stream" in found["nowhere"]
    with broker.connect() as mail:
        config = {"name": "MQ", "subjects": ["mq.>"]}
        answer = asked(mail, "$JS.API.STREAM.CREATE.MQ", config)
        assert "error" not in answer

        def stored() -> Any:  # noqa: ANN401
            body = asked(mail, "$JS.API.STREAM.INFO.MQ", {})
            return body["state"]["messages"]

        assert until(stored, "it is sent when it can be", FOLLOWED_S) == 1
    told = httpx.get(f"{url}/metrics", timeout=20).text
    assert "mq9_schedule_firings_total 1.0" in told


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ('{ name: "a", mailbox: "m" }', "no cron"),
        ('{ name: "a", cron: "* * * * *" }', "either mailbox, or subject"),
        ('{ name: "a", mailbox: "m", cron: "61 * * * *" }', "Bad minute"),
        ('{ name: "a", mailbox: "m", cron: "0 0 30 2 *" }', "Bad day"),
        ('{ name: "a", mailbox: "m", cron: "* * *" }', "minute, hour, day"),
        ('{ name: "a b", mailbox: "m", cron: "* * * * *" }', "letters, digits"),
        ('{ name: "a", mailbox: "m", cron: "* * * * *", timezone: "Mars" }', "time zone"),
        ('{ name: "a", subject: "a.*", cron: "* * * * *" }', "subject"),
        ('{ name: "a", subject: "$SYS.a", cron: "* * * * *" }', "subject"),
        ('{ name: "a", mailbox: "m", cron: "* * * * *", priority: "loud" }', "one of"),
        (f"{EVERY_MINUTE}, {EVERY_MINUTE}", "another schedule"),
    ],
)
def test_a_wrong_one_is_refused_at_the_start(entry: str, said: str) -> None:
    from mq9.config import ConfigError, loads

    with pytest.raises(ConfigError, match=said):
        loads(f"mq9 {{ schedules: [ {entry} ] }}", {})


def test_a_firing_is_a_task_where_an_envelope_is_asked_for(start: Start) -> None:
    broker, _ = start()
    with broker.connect() as mail:
        note(mail, "report", "*/7 * * * *", int(time.time()) - 3600)
    broker.config = broker.config.removesuffix("}\n") + (
        'streams: [ { name: MQ, subjects: ["mq.>"], envelope: yes } ]\n'
        'schedules: [ { name: "report", subject: "mq.scheduled.report", cron: "*/7 * * * *"\n'
        "  data: { type: daily_usage, granularity: hourly }, envelope: yes } ]\n}\n"
    )
    broker.restart()
    with broker.connect() as mail:

        def stored() -> Any:  # noqa: ANN401
            return asked(mail, "$JS.API.STREAM.MSG.GET.MQ", {"seq": 1}).get("message")

        message = until(stored, "it is fired", FOLLOWED_S)
    task = json.loads(base64.b64decode(message["data"]))
    name = base64.b64decode(message["hdrs"]).decode()
    assert f"Nats-Msg-Id: {task['id']}\r\n" in name
    assert at(task.pop("timestamp")) == int(task.pop("id").rpartition(".")[2])
    assert task == {
        "schema": "hanzo.mq.v1",
        "type": "schedule.report",
        "source": "mq9",
        "data": {"type": "daily_usage", "granularity": "hourly"},
    }
