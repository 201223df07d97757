"""Messages that ask to be traced: whether they are delivered. What traces say is tested elsewhere.

Nobody listens where the traces go: they name the server and the time.
"""

from tests.conformance.exchange import Exchange
from tests.conformance.scripts_access import as_user
from tests.conformance.scripts_protocol import VERBOSE, C, after
from tests.conformance.scripts_publishing import hpub


def traced(subject: str, destination: str = "nowhere", **more: str) -> str:
    """A message to `subject` that is traced; `only` is the header that keeps it from delivery."""
    only = f"Nats-Trace-Only: {more['only']}\r\n" if "only" in more else ""
    return hpub(subject, f"NATS/1.0\r\nNats-Trace-Dest: {destination}\r\n{only}\r\n", "hi")


TRACING: list[Exchange] = [
    *after(
        C,
        traced_is_delivered="SUB ta 1\r\nSUB ta q 2\r\n" + traced("ta"),
        traced_only="SUB tb 1\r\nSUB tb q 2\r\n" + traced("tb", only="true"),
        traced_only_does_not_count="SUB tc 1\r\nUNSUB 1 1\r\n"
        + traced("tc", only="true")
        + "PUB tc 1\r\nx\r\n" * 2,
        traced_request="SUB td 1\r\nSUB td-r 2\r\n" + traced("td td-r"),
        traced_only_request="SUB te 1\r\nSUB te-r 2\r\n" + traced("te te-r", only="true"),
        traced_request_to_nobody="SUB tf-r 2\r\n" + traced("tf tf-r"),
        traced_only_request_to_nobody="SUB tg-r 2\r\n" + traced("tg tg-r", only="true"),
        traced_only_without_destination="SUB th 1\r\n"
        + hpub("th", "NATS/1.0\r\nNats-Trace-Only: true\r\n\r\n", "hi"),
        traced_only_first_header="SUB ti 1\r\n"
        + hpub("ti", "NATS/1.0\r\nNats-Trace-Only: true\r\nNats-Trace-Dest: x\r\n\r\n"),
        traced_in_lower_case="SUB tj 1\r\n"
        + hpub("tj", "NATS/1.0\r\nnats-trace-dest: x\r\nnats-trace-only: true\r\n\r\n"),
        traced_name_inside_a_value="SUB tk 1\r\n"
        + hpub("tk", "NATS/1.0\r\nX: Nats-Trace-Dest: x\r\nNats-Trace-Only: true\r\n\r\n"),
        traced_name_inside_a_name="SUB tl 1\r\n"
        + hpub("tl", "NATS/1.0\r\nX-Nats-Trace-Dest: x\r\nNats-Trace-Only: true\r\n\r\n"),
        traced_by_traceparent="SUB tm 1\r\n"
        + hpub(
            "tm",
            "NATS/1.0\r\ntraceparent: 00-4bf92f3577b34da6-00f067aa0ba902b7-01\r\n\r\n",
            "x",
        ),
        **{
            f"traced_only_says_{word or 'nothing'}": "SUB tn 1\r\n" + traced("tn", only=word)
            for word in ("1", "0", "on", "off", "TRUE", "True", "yes", "false", "", " true ")
        },
        **{
            f"traced_only_to_{name}": "SUB to 1\r\n" + traced("to", to, only="true")
            for name, to in {
                "nothing": "",
                "a wildcard": "a.*",
                "all": ">",
                "two words": "a b",
                "empty tokens": "a..b",
                "nobody wants it": "trace disabled",
                "a padded subject": "  padded  ",
            }.items()
        },
    ),
    *after(VERBOSE, traced_verbose="SUB tp 1\r\n" + traced("tp", only="true")),
    *as_user(
        "limited",
        traced_to_what_is_not_allowed="SUB a.x 1\r\n" + traced("a.x", "c"),
        traced_only_to_what_is_not_allowed="SUB a.x 1\r\n" + traced("a.x", "c", only="true"),
        traced_to_what_is_allowed="SUB a.x 1\r\n" + traced("a.x", "a.trace-nowhere"),
        traced_and_not_allowed="SUB a.x 1\r\n" + traced("a.secret", "a.trace-nowhere"),
    ),
]
