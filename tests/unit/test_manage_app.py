"""What the REST interface says when something is wrong with a request, or with itself."""

import re

import pytest
from starlette.testclient import TestClient

from mq9.manage.app import make_app
from mq9.manage.settings import Settings


@pytest.fixture
def client() -> TestClient:
    app = make_app(Settings())

    async def fail() -> None:
        raise LookupError("nobody has thought of this")

    app.add_api_route("/fail", fail)
    # Not begun: there is no broker, and none is needed.
    return TestClient(app, base_url="http://127.0.0.1:8055", client=("127.0.0.1", 9))


def test_a_failure_nobody_has_thought_of_is_a_problem_too(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    answer = client.get("/fail")
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert "nobody" not in answer.text
    assert "nobody has thought of this" in caplog.text


@pytest.mark.parametrize("name", ["a b", "a*", "a.>", "a/b", "a\\b", "", "a" * 256])
def test_the_document_says_what_no_queue_is_called(client: TestClient, name: str) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    given = paths["/v1/queues/{name}/messages"]["post"]["parameters"]
    [schema] = [each["schema"] for each in given if each["name"] == "name"]
    fits = re.search(schema["pattern"], name) and len(name) <= schema["maxLength"]
    assert not fits
    assert re.search(schema["pattern"], "agent.7.inbox")
