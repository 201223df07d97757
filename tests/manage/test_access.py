"""Who may look and who may steer, and how other web sites are kept out."""

import json
import re

import httpx
import pytest
from tests.mail import Mail
from tests.manage.conftest import OPERATORS, Manage, Managed
from tests.peers import until

LOOKS = (
    "/v1/state",
    "/v1/overview",
    "/v1/queues",
    "/v1/queues/desk",
    "/v1/queues/desk/messages",
    "/v1/queues/desk/messages/1",
    "/v1/consumers",
    "/v1/consumers/readers",
    "/v1/dead-letters",
    "/v1/dead-letters?resolved=true",
    "/v1/dead-letters/reasons",
    "/v1/dead-letters/desk.dead:0",
    "/v1/dead-letters/jobs/1",
    "/v1/schedules",
    "/v1/agents",
    "/v1/connections",
    "/v1/audit",
    "/metrics",
)
STEERS: tuple[tuple[str, str, object], ...] = (
    ("POST", "/v1/queues/desk/messages", {"payload": "x"}),
    ("DELETE", "/v1/queues/desk/messages/0", None),
    ("POST", "/v1/queues/desk/purge", None),
    ("DELETE", "/v1/consumers/readers?queue=desk", None),
    ("DELETE", "/v1/queues/desk", None),
    ("POST", "/v1/dead-letters/replay-all", {}),
    ("POST", "/v1/dead-letters/purge", {}),
    ("POST", "/v1/dead-letters/desk.dead:0/replay", None),
    ("PATCH", "/v1/dead-letters/desk.dead:0", {"resolved": True}),
    ("DELETE", "/v1/dead-letters/jobs/1", None),
)


@pytest.fixture(scope="module", autouse=True)
def desk(guarded: Managed) -> None:
    with guarded.mail("boss") as mail:
        mail.done("MAILBOX.CREATE", {"name": "desk", "dead_letter": "desk.dead"})
        mail.deliver("desk", b"dead")
        mail.deliver("desk", b"one")
        mail.fetch("desk", "readers")
        mail.ack("desk", "readers", 0, kind="term")
        mail.done("MSG.DELETE.desk.0")
    with guarded.client(auth=("boss", "boss-pw")) as boss:
        until(lambda: boss.get("/v1/dead-letters").json()["total"], "the dead letter is listed")
        nothing = {"reason": "none"}
        assert boss.post("/v1/dead-letters/replay-all", json=nothing).json()["job"] == 1
        until(lambda: boss.get("/v1/consumers").json()["total"], "the group is listed")


def sign_in(client: httpx.Client, user: str, password: str = "") -> httpx.Response:
    given = {"user": user, "password": password or f"{user}-pw"}
    return client.post("/v1/session", json=given)


@pytest.mark.parametrize("path", LOOKS)
def test_looking_is_for_operators(guarded: Managed, path: str) -> None:
    with guarded.client() as client:
        for user, status in (("boss", 200), ("eyes", 200), ("agent", 403)):
            assert client.get(path, auth=(user, f"{user}-pw")).status_code == status, user
        assert client.get(path).status_code == 401


@pytest.mark.parametrize(("method", "path", "body"), STEERS)
def test_steering_is_for_those_who_may(
    guarded: Managed, method: str, path: str, body: object
) -> None:
    with guarded.client() as client:
        for auth, status in ((("eyes", "eyes-pw"), 403), (("agent", "agent-pw"), 403), (None, 401)):
            response = client.request(method, path, json=body, auth=auth)
            assert response.status_code == status, (auth, response.text)
    with guarded.mail("boss") as mail:
        assert len(mail.done("MSG.QUERY.desk", {"since": 0})["messages"]) == 1


@pytest.mark.parametrize("by", ["password", "session"])
@pytest.mark.parametrize("at", range(len(STEERS)), ids=[f"{one} {path}" for one, path, _ in STEERS])
def test_who_may_steer_does(guarded: Managed, at: int, by: str) -> None:
    method, path, body = STEERS[at]
    name = f"{by}{at}"
    with guarded.mail("boss") as mail:
        mail.done("MAILBOX.CREATE", {"name": name, "dead_letter": f"{name}.dead"})
        mail.deliver(name, b"dead")
        mail.deliver(name, b"one")
        mail.fetch(name, "readers", num_msgs=1)
        mail.ack(name, "readers", 0, kind="term")
    with guarded.client() as boss:
        if by == "password":
            boss.auth = ("boss", "boss-pw")
        else:
            boss.headers["x-csrf-token"] = sign_in(boss, "boss").json()["csrf"]
        query = {"queue": name}
        until(lambda: boss.get("/v1/dead-letters", params=query).json()["total"], "it is listed")
        if body == {}:
            # All of this queue.
            body = query | {"wait": True}
        response = boss.request(method, path.replace("desk", name), json=body)
        assert response.status_code == 200, response.text


SCRAPER = """{ user: scraper, password: scraper-pw, permissions: { publish: [
  "$mq9.AI.ADMIN.ACTIVITY", "$mq9.AI.ADMIN.ACCESS"
] } }"""
# What the broker is asked for in their name.
REFUSED = {
    "/v1/queues/desk",
    "/v1/queues/desk/messages",
    "/v1/queues/desk/messages/1",
    "/v1/dead-letters/desk.dead:0",
    "/v1/dead-letters?resolved=true",
    "/v1/agents",
    "/v1/connections",
}


def test_a_scraper_sees_numbers_and_no_message(manage: Manage) -> None:
    """One with the two rights that the page on monitoring gives it."""
    found = manage(OPERATORS.replace("{ user: agent", f"{SCRAPER}\n    {{ user: agent"))
    with found.mail("boss") as mail:
        mail.done("MAILBOX.CREATE", {"name": "desk", "dead_letter": "desk.dead"})
        mail.deliver("desk", b"secret")
        mail.deliver("desk", b"secret")
        mail.fetch("desk", "readers", num_msgs=1)
        mail.ack("desk", "readers", 0, kind="term")
    with found.client(auth=("boss", "boss-pw")) as boss:
        until(lambda: boss.get("/v1/dead-letters").json()["total"], "the dead letter is listed")
        until(lambda: boss.get("/v1/consumers").json()["total"], "the group is listed")
        nothing = {"reason": "none"}
        assert boss.post("/v1/dead-letters/replay-all", json=nothing).json()["job"] == 1
    with found.client(auth=("scraper", "scraper-pw")) as scraper:
        for path in LOOKS:
            response = scraper.get(path)
            assert response.status_code == (403 if path in REFUSED else 200), path
            assert "secret" not in response.text, path
        for method, path, body in STEERS:
            assert scraper.request(method, path, json=body).status_code == 403, path


def test_a_session_needs_its_token_for_changes(guarded: Managed) -> None:
    with guarded.client() as client:
        assert sign_in(client, "boss", "wrong").status_code == 401
        assert sign_in(client, "agent").status_code == 403
        session = sign_in(client, "boss")
        cookie = session.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert client.get("/v1/queues").status_code == 200
        body = {"payload": "x", "delay_s": 3600}
        path = "/v1/queues/desk/messages"
        assert client.post(path, json=body).status_code == 403
        wrong = {"x-csrf-token": "wrong"}
        assert client.post(path, json=body, headers=wrong).status_code == 403
        right = {"x-csrf-token": session.json()["csrf"]}
        assert client.post(path, json=body, headers=right).status_code == 200
        value = client.cookies["mq9_session"]
        assert client.delete("/v1/session").status_code == 200
        client.cookies.set("mq9_session", value)
        assert client.get("/v1/queues").status_code == 401


def test_many_sessions_of_a_user_end_nobody_elses(guarded: Managed) -> None:
    with guarded.client() as boss, guarded.client() as eyes:
        assert sign_in(boss, "boss").status_code == 200
        assert sign_in(eyes, "eyes").status_code == 200
        first = eyes.cookies["mq9_session"]
        for _ in range(201):
            with guarded.client() as client:
                assert sign_in(client, "eyes").status_code == 200
                last = client.cookies["mq9_session"]
        assert boss.get("/v1/queues").status_code == 200
        for cookie, status in ((first, 401), (last, 200)):
            eyes.cookies.clear()
            eyes.cookies.set("mq9_session", cookie)
            assert eyes.get("/v1/queues").status_code == status


def test_passwords_cannot_be_tried_for_ever(guarded: Managed) -> None:
    with httpx.Client(base_url=guarded.url, timeout=20) as client:
        statuses = [sign_in(client, "boss", "wrong").status_code for _ in range(12)]
    assert statuses[0] == 401
    assert statuses[-1] == 429


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:8055"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_other_web_sites_are_refused(plain: Managed, headers: dict[str, str]) -> None:
    with plain.client() as client, plain.mail() as mail:
        name = "rebound"
        mail.ask("MAILBOX.CREATE", {"name": name})
        response = client.post(
            f"/v1/queues/{name}/messages", json={"payload": "x"}, headers=headers
        )
        assert response.status_code == 403, response.text
        assert mail.done(f"MSG.QUERY.{name}", {"since": 0})["messages"] == []
        if "Host" in headers:
            assert client.get("/", headers=headers).status_code == 403


def test_a_form_of_another_site_changes_nothing(plain: Managed, mail: Mail) -> None:
    """A browser sends forms without asking; what they can hold is not taken for JSON."""
    mail.ask("MAILBOX.CREATE", {"name": "formed"})
    body = json.dumps({"payload": "x"})
    with plain.client() as client:
        response = client.post(
            "/v1/queues/formed/messages", content=body, headers={"Content-Type": "text/plain"}
        )
    assert response.status_code == 422
    assert mail.done("MSG.QUERY.formed", {"since": 0})["messages"] == []


def test_every_path_of_the_document_is_in_the_matrix(guarded: Managed) -> None:
    """Another path is looked at or steered by somebody: the lists above say who may."""
    with guarded.client() as client:
        document = client.get("/openapi.json").json()
    wanted = {
        (method.upper(), re.sub(r"\{[^}]*\}", "*", path))
        for path, methods in document["paths"].items()
        for method in methods
    }
    # What is not for operators alone: who asks, and whether the process is well.
    wanted -= {(method, "/v1/session") for method in ("GET", "POST", "DELETE")}
    wanted -= {("GET", "/healthz")}
    listed = [("GET", path) for path in LOOKS] + [(method, path) for method, path, _ in STEERS]
    patterns = {(method, path.partition("?")[0]) for method, path in listed}
    missing = {
        (method, path)
        for method, path in wanted
        if not any(
            method == given and re.fullmatch(path.replace("*", "[^/]+"), asked)
            for given, asked in patterns
        )
    }
    assert missing == set()
