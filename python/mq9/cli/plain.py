"""`mq9 pub`, `request`, and `sub` of a subject: plain NATS, for looking at what passes."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from mq9.cli import broker
from mq9.cli.exits import NOTHING, OK, REFUSED, Failure
from mq9.cli.messages import given_header, given_payloads
from mq9.cli.output import one_line, print_json, print_payload, visible

if TYPE_CHECKING:
    from nats.aio.msg import Msg

    from mq9.client import Client


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Give the parser these commands."""
    pub = broker.add_command(
        *(commands, "pub", _run_pub),
        help="publish to a NATS subject; nothing is stored",
        example="mq9 pub weather.berlin '{\"celsius\": 7}'",
        connects=False,
    )
    _add_message(pub)

    request = broker.add_command(
        *(commands, "request", _run_request),
        help="publish to a NATS subject and print the reply",
        example="mq9 request '$mq9.AI.PUBLIC.LIST' '{\"limit\": 5}'",
        connects=False,
    )
    _add_message(request)


def _add_message(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subject", help="the subject")
    parser.add_argument("payload", nargs="?", help="the message; - reads the standard input")
    parser.add_argument("-f", "--file", metavar="FILE", help="read the message from a file")
    parser.add_argument(
        "-H",
        "--header",
        action="append",
        default=[],
        metavar="NAME:VALUE",
        help="a header to go with it; may be repeated",
    )


def _run_pub(arguments: argparse.Namespace) -> int:
    [payload], headers = _message(arguments)

    async def publish(client: "Client", arguments: argparse.Namespace) -> int:
        await client.nats.publish(arguments.subject, payload, headers=headers)
        await _check_refusal(client, arguments)
        if arguments.json:
            print_json({"published": arguments.subject, "bytes": len(payload)})
        else:
            print(f"published {len(payload)} bytes to {visible(arguments.subject)}")
        return OK

    return broker.run(publish, arguments)


def _run_request(arguments: argparse.Namespace) -> int:
    [payload], headers = _message(arguments)

    async def request(client: "Client", arguments: argparse.Namespace) -> int:
        from nats.errors import NoRespondersError
        from nats.errors import TimeoutError as NatsTimeoutError

        from mq9.errors import RequestTimeout

        try:
            reply = await client.nats.request(
                arguments.subject, payload, timeout=arguments.timeout, headers=headers
            )
        except NoRespondersError:
            raise Failure(f"nobody answers {visible(arguments.subject)}") from None
        except NatsTimeoutError:
            raise RequestTimeout(f"no reply in {arguments.timeout:g} s") from None
        if arguments.json:
            print_json(_fields(reply))
        else:
            print_payload(reply.data)
        return OK

    return broker.run(request, arguments)


async def sub(client: "Client", arguments: argparse.Namespace) -> int:
    """Prints what is published to a subject; part of `mq9 sub`."""
    wanted = await client.nats.subscribe(arguments.subject, queue=arguments.queue or "")
    await _check_refusal(client, arguments)
    if not (arguments.json or arguments.payload):
        print(f"listening to {visible(arguments.subject)}; Ctrl-C ends it", file=sys.stderr)
    seen = 0
    async for message in wanted.messages:
        _show(message, arguments)
        seen += 1
        if seen == arguments.count:
            return OK
    return OK if seen else NOTHING


def _show(message: "Msg", arguments: argparse.Namespace) -> None:
    if arguments.payload:
        print_payload(message.data)
    elif arguments.json:
        print_json(_fields(message))
    else:
        answer = f"  (reply to {visible(message.reply)})" if message.reply else ""
        print(f"{visible(message.subject)}{answer}  {one_line(message.data)}", flush=True)


def _fields(message: "Msg") -> dict[str, Any]:
    import base64

    fields: dict[str, Any] = {"subject": message.subject}
    if message.reply:
        fields["reply"] = message.reply
    if message.headers:
        fields["headers"] = dict(message.headers)
    try:
        return fields | {"payload": message.data.decode()}
    except UnicodeDecodeError:
        encoded = base64.b64encode(message.data).decode()
        return fields | {"payload": encoded, "encoding": "base64"}


def _message(arguments: argparse.Namespace) -> "tuple[list[bytes], dict[str, str] | None]":
    if arguments.payload is None and arguments.file is None:
        arguments.payload = ""
    headers = dict(given_header(written) for written in arguments.header)
    return given_payloads(arguments), headers or None


async def _check_refusal(client: "Client", arguments: argparse.Namespace) -> None:
    # The first ping of nats-py overtakes what it has not written yet, the second does not; a
    # refusal comes before its answer, and is not raised.
    for _ in range(2):
        await client.nats.flush(arguments.timeout)
    if error := client.nats.last_error:
        raise Failure(visible(str(error).removeprefix("nats: ")), REFUSED)
