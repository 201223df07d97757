"""The server's own answers under `$SYS`.

`$JS.API` is not among it: with `-js` the broker serves it, without it nobody does.
"""

import itertools
import json
from typing import Any

from mq9.config import PermissionRules
from mq9.server.clock import now_ms, timestamp
from mq9.server.info import NATS_VERSION
from mq9.server.running import Running

USER_INFO = "$SYS.REQ.USER.INFO"
_ACCOUNT = "$G"


class SystemSubjects:
    """Answers requests to the server's own subjects."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._sequence = itertools.count(1)
        running.broker.serve(USER_INFO, self._user_info)

    def _user_info(
        self, cid: int, _subject: str, reply: str, _headers: bytes, _payload: bytes
    ) -> None:
        session = self._running.clients.open.get(cid)
        if session is None or not reply:
            return
        rules = session.grant.rules if session.grant else None
        user = {
            "user": session.facts.user,
            "account": _ACCOUNT,
            "account_name": _ACCOUNT,
            **({"permissions": permissions_document(rules)} if rules else {}),
        }
        answer = {"server": self._server(), "data": user}
        document = json.dumps(answer, separators=(",", ":")).encode()
        self._running.broker.answer(cid, reply, document)

    def introduce(self) -> None:
        """Tell the broker how the server calls itself in traces, once the address is known."""
        members = json.dumps(self._about(), separators=(",", ":"))
        self._running.broker.introduce(members[1:-1])

    def _server(self) -> dict[str, Any]:
        return {**self._about(), "seq": next(self._sequence), "time": timestamp(now_ms())}

    def _about(self) -> dict[str, Any]:
        identity = self._running.identity
        return {
            "name": identity.name,
            "host": identity.host,
            "id": identity.server_id,
            "ver": NATS_VERSION,
            "jetstream": self._running.options.jetstream,
            "flags": 0,
        }


def permissions_document(rules: PermissionRules) -> dict[str, Any]:
    """Permissions with nats-server's field names; times are in nanoseconds."""
    publish = _lists(rules.publish_allow, rules.publish_deny)
    subscribe = _lists(rules.subscribe_allow, rules.subscribe_deny)
    responses = {"max": rules.responses_max, "ttl": (rules.responses_ttl_ms or 0) * 1_000_000}
    return {
        **({"publish": publish} if publish else {}),
        **({"subscribe": subscribe} if subscribe else {}),
        **({"responses": responses} if rules.responses_max is not None else {}),
    }


def _lists(allow: tuple[str, ...] | None, deny: tuple[str, ...]) -> dict[str, list[str]]:
    return {**({"allow": list(allow)} if allow else {}), **({"deny": list(deny)} if deny else {})}
