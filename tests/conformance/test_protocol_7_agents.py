"""Agents: REGISTER, UNREGISTER, REPORT and DISCOVER, sentence by sentence.

Other tests, or other users of a broker that is only pointed at, may have agents of their own: each
test looks only for those that carry a tag of its own.
"""

import json
import secrets
from collections.abc import Iterator

import pytest
from tests.agents import all_pages, card, found, mailboxes, register, settled
from tests.mail import Json, Mail
from tests.peers import until
from tests.restarts import Restarting


@pytest.fixture
def tag() -> str:
    return secrets.token_hex(8)


@pytest.fixture
def names(mail: Mail) -> Iterator[list[str]]:
    """Addresses of agents, which are taken out after the test."""
    names = [f"agent.{secrets.token_hex(8)}" for _ in range(5)]
    yield names
    for name in names:
        mail.ask("AGENT.UNREGISTER", card(name))


@pytest.mark.parametrize("form", ["{}", "mq9://broker/{}", "mq9://broker.example:4222/{}"])
def test_register_needs_an_object_with_mailbox_in_either_form(
    mail: Mail, names: list[str], tag: str, form: str
) -> None:
    mailbox = form.format(names[0])
    assert mail.text("AGENT.REGISTER", card(mailbox, tags=[tag])) == '{"error":""}'
    assert found(mail, tags=[tag]) == [mailbox]
    assert "JSON object" in mail.ask("AGENT.REGISTER", b"[]")["error"]
    assert "mailbox is missing" in mail.ask("AGENT.REGISTER", b"{}")["error"]


def test_the_body_comes_back_byte_for_byte(mail: Mail, names: list[str], tag: str) -> None:
    body = (
        f'{{"tags": ["{tag}"],  "mailbox":"{names[0]}", "n":1.10, "z":0.1e+2,'
        ' "big":123456789012345678901234567890, "text":"\\u00e9é\\n", "in":{"b":1,"a":[ null ]}}'
    )
    mail.done("AGENT.REGISTER", body.encode())
    expected = f'{{"error":"","agents":[{body}],"total":1}}'
    assert mail.text("AGENT.DISCOVER", {"tags": [tag]}) == expected


def test_registering_again_replaces(mail: Mail, names: list[str], tag: str) -> None:
    first, second, *_ = names
    register(mail, [card(first, name="old", tags=[tag]), card(second, tags=[tag])])
    register(mail, [card(f"mq9://x/{first}", name="new", tags=[tag])])
    agents = mail.done("AGENT.DISCOVER", {"tags": [tag]})["agents"]
    assert [agent["mailbox"] for agent in agents] == [second, f"mq9://x/{first}"]
    assert agents[-1]["name"] == "new"


def test_unregister_takes_an_agent_out(mail: Mail, names: list[str], tag: str) -> None:
    register(mail, [card(names[0], tags=[tag])])
    body = card(f"mq9://broker/{names[0]}", name="whatever else it says")
    assert mail.text("AGENT.UNREGISTER", body) == '{"error":""}'
    assert found(mail, tags=[tag]) == []
    expected = f"agent {names[0]} is not registered"
    assert mail.ask("AGENT.UNREGISTER", card(names[0])) == {"error": expected}


def test_report_is_a_heartbeat_and_status(mail: Mail, names: list[str], tag: str) -> None:
    register(mail, [card(names[0], tags=[tag])])
    assert mail.text("AGENT.REPORT", card(names[0], load=0.5)) == '{"error":""}'
    answer = mail.done("AGENT.DISCOVER", {"tags": [tag], "status": True, "alive": True})
    [status] = answer["statuses"]
    assert status["report"] == card(names[0], load=0.5)
    assert status["last_seen"] >= status["registered"]


def test_report_of_an_unknown_agent_is_an_error(mail: Mail, names: list[str]) -> None:
    error = mail.ask("AGENT.REPORT", card(names[0]))
    assert error == {"error": f"agent {names[0]} is not registered"}


def test_an_agent_may_ask_for_expiry(mail: Mail, names: list[str], tag: str) -> None:
    register(mail, [card(names[0], tags=[tag], ttl=1), card(names[1], tags=[tag], ttl=0)])
    until(lambda: found(mail, tags=[tag]) == [names[1]], "the agent expired")
    assert "is not registered" in mail.ask("AGENT.REPORT", card(names[0]))["error"]


def test_discover_replies_with_agents_and_total_best_match_first(
    mail: Mail, names: list[str], tag: str
) -> None:
    word = f"w{secrets.token_hex(4)}"
    register(
        mail,
        [
            card(names[0], description=f"has nothing to do with {word}, or a little", tags=[tag]),
            card(names[1], name=word, tags=[tag]),
            card(names[2], name="another", tags=[tag]),
        ],
    )
    answer = mail.done("AGENT.DISCOVER", {"text": word})
    assert list(answer) == ["error", "agents", "total"]
    assert mailboxes(answer) == [names[1], names[0]]
    assert answer["total"] == 2


def test_semantic_wins_over_text(mail: Mail, names: list[str], tag: str) -> None:
    word = f"w{secrets.token_hex(4)}"
    register(
        mail,
        [
            card(names[0], description=f"sings {word}", tags=[tag]),
            card(names[1], description="tells whether it is going to rain", tags=[tag]),
        ],
    )
    mail.deadline_s = 60.0
    request = {"text": word, "semantic": "do I need an umbrella", "tags": [tag]}
    assert mailboxes(settled(mail, **request))[0] == names[1]


def test_neither_lists_all_newest_last(mail: Mail, names: list[str], tag: str) -> None:
    register(mail, [card(name, tags=[tag]) for name in names])
    assert found(mail, tags=[tag]) == names
    everyone = mail.done("AGENT.DISCOVER", {"limit": 1000})
    assert mailboxes(everyone)[-len(names) :] == names or everyone["total"] > 1000


def test_limit_and_page(mail: Mail, tag: str) -> None:
    names = [f"agent.{tag}.{number}" for number in range(25)]
    register(mail, [card(name, tags=[tag], ttl=60) for name in names])
    assert found(mail, tags=[tag]) == names[:20]
    assert found(mail, tags=[tag], page=2) == names[20:]
    assert found(mail, tags=[tag], page=3) == []
    assert found(mail, tags=[tag], limit=1000) == names
    assert all_pages(mail, 7, tags=[tag]) == names
    assert mail.done("AGENT.DISCOVER", {"tags": [tag], "limit": 1, "page": 9})["total"] == 25


def test_the_registry_survives_restarts(own: Restarting) -> None:
    agents: list[Json] = [card("agent.a", name="plumber"), card("agent.b", name="carpenter")]
    with own.connect() as mail:
        register(mail, agents)
        mail.done("AGENT.REPORT", card("agent.a", load=1))
    for kill in (False, True):
        own.restart(kill=kill)
        with own.connect() as mail:
            answer = mail.done("AGENT.DISCOVER", {"status": True})
            assert answer["agents"] == agents
            assert answer["statuses"][0]["report"] == card("agent.a", load=1)
            assert found(mail, text="carpenter") == ["agent.b"]


def test_report_and_unregister_take_a_name_that_one_agent_has(
    mail: Mail, names: list[str], tag: str
) -> None:
    """Instead of `mailbox`; several agents of that name, or none, are an error."""
    register(mail, [card(names[0], name=f"one {tag}", tags=[tag])])
    register(mail, [card(each, name=f"twin {tag}", tags=[tag]) for each in names[1:3]])
    mail.done("AGENT.REPORT", {"name": f"one {tag}", "load": 7})
    statuses = mail.done("AGENT.DISCOVER", {"tags": [tag], "status": True})["statuses"]
    assert [each["report"] for each in statuses] == [{"name": f"one {tag}", "load": 7}, None, None]
    for command in ("REPORT", "UNREGISTER"):
        several = mail.ask(f"AGENT.{command}", {"name": f"twin {tag}"})["error"]
        assert several == f'several agents have the name "twin {tag}": give mailbox'
        nobody = mail.ask(f"AGENT.{command}", {"name": f"none {tag}"})["error"]
        assert nobody == f'agent "none {tag}" is not registered'
        for body, problem in (
            ({"name": 7}, "invalid name: expected a string, found 7"),
            ({"name": ""}, "invalid name: it must have 1 to 512 characters"),
            ({"name": "x" * 513}, "invalid name: it must have 1 to 512 characters"),
            ({"mailbox": None}, "mailbox is missing"),
            ({"mailbox": 7, "name": f"one {tag}"}, "invalid mailbox: expected a string"),
        ):
            assert problem in mail.ask(f"AGENT.{command}", body)["error"]
    # With both, `mailbox` counts.
    mail.done("AGENT.UNREGISTER", {"mailbox": names[1], "name": f"one {tag}"})
    mail.done("AGENT.UNREGISTER", {"name": f"twin {tag}"})
    mail.done("AGENT.UNREGISTER", {"name": f"one {tag}"})
    assert found(mail, tags=[tag]) == []


def test_a_name_is_known_after_a_restart(own: Restarting, tag: str) -> None:
    """To those who ask while the agents are being loaded, too."""
    with own.connect() as mail:
        register(mail, [card("agent.named", name=tag), card("agent.other", name=f"not {tag}")])
    own.restart(kill=True)
    with own.connect() as mail:
        mail.publish("$mq9.AI.AGENT.REPORT", {"name": tag, "load": 1})
        mail.done("AGENT.REPORT", {"name": f"not {tag}"})
        mail.done("AGENT.UNREGISTER", {"name": tag})
        mail.done("AGENT.UNREGISTER", {"name": f"not {tag}"})


def test_what_was_registered_before_is_found_by_meaning_too(
    mail: Mail, names: list[str], tag: str
) -> None:
    """Whether it has been read or words stand in for it: also the first search finds it."""
    jobs = ["tells whether it is going to rain", "reads invoices", "mends water pipes"]
    register(mail, [card(at, name=job, tags=[tag]) for at, job in zip(names, jobs, strict=False)])
    subject = mail.begin("AGENT.DISCOVER", {"semantic": "invoices, please", "tags": [tag]})
    answer = mail.answer(subject, 60.0)
    assert set(mailboxes(answer)) == set(names[:3])
    assert mailboxes(answer)[0] == names[1]
    assert answer["total"] == 3


def test_scores_are_given_to_those_who_ask(mail: Mail, names: list[str], tag: str) -> None:
    """One for each agent, greater is better; zero where nothing was searched for."""
    register(mail, [card(each, name=f"plumber {each}", tags=[tag]) for each in names])
    searches: list[Json] = [{"text": "plumber"}, {"semantic": "mends water pipes"}]
    for search in searches:
        asked = {**search, "tags": [tag]}
        assert "scores" not in mail.answer(mail.begin("AGENT.DISCOVER", asked), 60.0)
        scores = settled(mail, **asked, scores=True)["scores"]
        assert len(scores) == len(names)
        assert scores == sorted(scores, reverse=True)
        assert scores[-1] > 0
    assert mail.done("AGENT.DISCOVER", {"tags": [tag], "scores": True})["scores"] == [0.0] * 5


# Each with a part of the error that it must get.
BAD_CARDS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "mailbox is missing"),
    "list": (b"[]", "JSON object"),
    "text": (b'"agent"', "JSON object"),
    "null": (b"null", "JSON object"),
    "broken": (b'{"mailbox":', "invalid request"),
    "two": (b'{"mailbox":"a"} {}', "invalid request"),
    "no UTF-8": (b'{"mailbox":"a","name":"\xff"}', "invalid request"),
    "half a surrogate": (b'{"mailbox":"a","name":"\\ud800"}', "invalid request"),
    "NaN": (b'{"mailbox":"a","n":NaN}', "invalid request"),
    "no mailbox": (b'{"name":"a"}', "mailbox is missing"),
    "null mailbox": (b'{"mailbox":null}', "mailbox is missing"),
    "number for a mailbox": (b'{"mailbox":7}', "invalid mailbox: expected a string, found 7"),
    "empty mailbox": (b'{"mailbox":""}', "must not be empty"),
    "upper case": (b'{"mailbox":"Agent"}', "must be lowercase"),
    "own mailbox": (b'{"mailbox":"$agents"}', "only a-z, 0-9 and dots"),
    "wildcard": (b'{"mailbox":"mq9://broker/a.*"}', "only a-z, 0-9 and dots"),
    "no address": (b'{"mailbox":"mq9://broker/"}', "must not be empty"),
    "no path": (b'{"mailbox":"mq9://broker"}', "mq9://<broker>/<address>"),
    "other scheme": (b'{"mailbox":"http://broker/a"}', "mq9://<broker>/<address>"),
    "too deep an address": (b'{"mailbox":"mq9://broker/a/b"}', "only a-z, 0-9 and dots"),
    "long": (b'{"mailbox":"%s"}' % (b"a" * 129), "at most 128 characters"),
    "same field twice": (b'{"mailbox":"a","name":"x","name":"y"}', '"name" is given more than'),
    "twice inside": (b'{"mailbox":"a","x":[{"b":1,"b":2}]}', '"b" is given more than once'),
    "deep": (b'{"mailbox":"a","x":%s%s}' % (b"[" * 10_000, b"]" * 10_000), "nested too deeply"),
    "deep objects": (
        b'{"mailbox":"a","x":%s1%s}' % (b'{"y":' * 10_000, b"}" * 10_000),
        "nested too deeply",
    ),
    "65 levels": (b'{"mailbox":"a","x":%s%s}' % (b"[" * 64, b"]" * 64), "nested too deeply"),
    "name": (b'{"mailbox":"a","name":["x"]}', "invalid name: expected a string, found a list"),
    "description": (b'{"mailbox":"a","description":{}}', "invalid description: expected a string"),
    "tags": (b'{"mailbox":"a","tags":"x"}', "invalid tags: expected a list"),
    "tag": (b'{"mailbox":"a","tags":["x",1]}', "invalid tags[1]: expected a string, found 1"),
    "tag of a skill": (
        b'{"mailbox":"a","skills":[{"tags":[null]}]}',
        "invalid skills[0].tags[0]: expected a string, found null",
    ),
    "ttl": (b'{"mailbox":"a","ttl":"1h"}', "invalid ttl: expected a whole number of seconds"),
    "half a second": (b'{"mailbox":"a","ttl":0.5}', "invalid ttl"),
    "negative": (b'{"mailbox":"a","ttl":-1}', "ttl is -1: it must be from 0 to"),
    "endless": (b'{"mailbox":"a","ttl":1%s}' % (b"0" * 40), "ttl is"),
    "large": (b'{"mailbox":"a","x":"%s"}' % (b"x" * 262_144), "262144 are allowed (max_card)"),
    "skills": (b'{"mailbox":"a","skills":[%s{}]}' % (b"{}," * 1000), "there are 1001 skills"),
    "many tags": (b'{"mailbox":"a","tags":[%s"t"]}' % (b'"t",' * 256), "there are 257 tags"),
    "many tags of skills": (
        b'{"mailbox":"a","skills":[%s{}]}' % (b'{"tags":[%s"t"]},' % (b'"t",' * 255) * 17),
        "skills have more than 4096 tags",
    ),
}


@pytest.mark.parametrize("kind", BAD_CARDS)
def test_a_bad_card_gets_a_clear_error_and_changes_nothing(own: Restarting, kind: str) -> None:
    payload, problem = BAD_CARDS[kind]
    with own.connect() as mail:
        before = mail.done("AGENT.DISCOVER")
        answer = mail.ask("AGENT.REGISTER", payload)
        assert list(answer) == ["error"]
        assert problem in answer["error"]
        assert len(answer["error"]) < 400
        assert mail.done("AGENT.DISCOVER") == before


def test_a_card_of_ten_megabytes_is_refused_and_the_connection_stays(own: Restarting) -> None:
    with own.connect() as mail:
        before = mail.done("AGENT.DISCOVER")
        answer = mail.ask("AGENT.REGISTER", b'{"mailbox":"a","x":"%s"}' % (b"x" * 10_000_000))
        assert "more than max_payload" in answer["error"]
        assert mail.done("AGENT.DISCOVER") == before


def test_what_is_just_allowed_is_taken(mail: Mail, names: list[str], tag: str) -> None:
    deep = json.loads("[" * 63 + "]" * 63)
    register(mail, [card(names[0], x=deep, tags=[tag], data="x" * 261_000)])
    assert mail.done("AGENT.DISCOVER", {"tags": [tag]})["agents"][0]["x"] == deep


BAD_REQUESTS: list[tuple[object, str]] = [
    (b"[]", "JSON object"),
    (b"{", "invalid request"),
    ({"text": 7}, "invalid text: expected a string, found 7"),
    ({"semantic": ["x"]}, "invalid semantic: expected a string, found a list"),
    ({"limit": 0}, "limit is 0: it must be from 1 to 1000"),
    ({"limit": 1001}, "limit is 1001: it must be from 1 to 1000"),
    ({"limit": "5"}, 'invalid limit: expected a whole number, found "5"'),
    ({"page": 0}, "page is 0: it must be from 1 to"),
    ({"scores": 1}, "invalid scores: expected true or false, found 1"),
    ({"alive": "yes"}, "invalid alive: expected true or false"),
    ({"tags": "x"}, "invalid tags: expected a list"),
    ({"tags": [1]}, "invalid tags[0]: expected a string, found 1"),
    ({"fields": "name"}, "invalid fields: expected a list"),
    ({"text": "x" * 5000}, "text has 5000 characters"),
    ({"fields": ["x"] * 257}, "there are 257 fields: at most 256 are allowed"),
]


@pytest.mark.parametrize(("request_", "problem"), BAD_REQUESTS)
def test_a_bad_discover_gets_a_clear_error(mail: Mail, request_: object, problem: str) -> None:
    answer = mail.ask("AGENT.DISCOVER", request_)
    assert problem in answer["error"]
    assert answer["agents"] == []
    assert answer["total"] == 0
