"""The OpenAPI document holds: generated requests get what it says, and nothing breaks."""

from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.manage.conftest import Managed, managed
from tests.manage.test_api import bury
from tests.peers import Serve, until

CHECKS = [
    *(not_a_server_error, status_code_conformance),
    *(content_type_conformance, response_schema_conformance),
]


@pytest.fixture(scope="module")
def described(serve_for_session: Serve, tmp_path_factory: pytest.TempPathFactory) -> Managed:
    """A broker of which nothing is needed afterwards, with something of all that is listed."""
    streams = 'streams: [ { name: "0", subjects: ["0"] }, { name: a, subjects: ["a.>"] } ]'
    consumers = 'consumers: [ { name: "0", stream: "0" } ]'
    folder = tmp_path_factory.mktemp("described")
    found = managed(serve_for_session, folder, inside=f"{streams}\n{consumers}")
    with found.mail() as mail:
        for name in ("0", "a", "jobs"):
            mail.done("MAILBOX.CREATE", {"name": name, "dead_letter": f"{name}.dead"})
            bury(mail, name, b"1", b"2")
            mail.deliver(name, b"\xff")
            mail.fetch(name, "g")
        mail.done("AGENT.REGISTER", {"mailbox": "a", "name": "A", "description": "does"})
    with found.client() as client:
        until(lambda: client.get("/v1/dead-letters").json()["total"] == 6, "it is known", 30)
    return found


def test_every_path_does_what_the_document_says(described: Managed) -> None:
    document = schemathesis.openapi.from_url(f"{described.url}/openapi.json")
    paths = []
    for found in document.get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()
        paths.append(operation.path)

        @given(case=operation.as_strategy())
        @settings(
            max_examples=12,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def check(case: schemathesis.Case[Any]) -> None:
            case.call_and_validate(checks=CHECKS, timeout=20)

        check()
    assert len(paths) > 20


def test_the_server_is_as_well_as_before(described: Managed) -> None:
    """Comes last: whatever was generated, it follows the broker and answers."""
    assert httpx.get(f"{described.url}/healthz", timeout=20).status_code == 200
    assert httpx.get(f"{described.url}/v1/state", timeout=20).json()["broker"]["gone_since"] is None
