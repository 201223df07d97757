"""Commands that talk to a broker: the options all of them have, and how their failures end.

Knows which exception is which exit code. What is asked is the command's.
"""

import argparse
import asyncio
import logging
import os
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from mq9.cli.exits import REFUSED, TIMEOUT, UNREACHABLE, USAGE, Failure

if TYPE_CHECKING:
    from mq9.client import Client

DEFAULT_URL = "nats://127.0.0.1:4222"

Action = Callable[["Client", argparse.Namespace], Awaitable[int]]


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of every command that talks to a broker."""
    group = parser.add_argument_group("broker")
    group.add_argument(
        "-s",
        "--server",
        metavar="URL",
        help=f"where the broker is (default: $MQ9_URL, or {DEFAULT_URL}); several with commas",
    )
    group.add_argument("--user", metavar="NAME", help="user (default: $MQ9_USER)")
    group.add_argument("--password", metavar="TEXT", help="password (default: $MQ9_PASSWORD)")
    group.add_argument("--token", metavar="TEXT", help="token (default: $MQ9_TOKEN)")
    group.add_argument(
        "--nkey", metavar="FILE", help="file with the seed of an nkey (default: $MQ9_NKEY)"
    )
    group.add_argument(
        "--tls-ca",
        metavar="FILE",
        help="authorities to trust besides the system's, with tls:// URLs",
    )
    group.add_argument("--tls-cert", metavar="FILE", help="certificate to show to the broker")
    group.add_argument("--tls-key", metavar="FILE", help="private key of that certificate")
    group.add_argument(
        "--inbox-prefix",
        metavar="SUBJECT",
        default="_INBOX",
        help="where replies come in, for users who may not subscribe to _INBOX.> (the default)",
    )
    group.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=seconds,
        default=5.0,
        help="how long to wait for the broker (default: 5)",
    )
    group.add_argument("--json", action="store_true", help="print JSON")


def run(action: Action, arguments: argparse.Namespace) -> int:
    """Connects, acts, and turns what went wrong into words and an exit code."""
    from mq9 import errors
    from mq9.client import Client

    # What the client would log is said once, as the command's own failure.
    logging.getLogger("mq9.client").addHandler(logging.NullHandler())

    async def act() -> int:
        async with Client(
            arguments.server,
            user=_setting(arguments.user, "MQ9_USER"),
            password=_setting(arguments.password, "MQ9_PASSWORD"),
            token=_setting(arguments.token, "MQ9_TOKEN"),
            nkey_seed=_setting(arguments.nkey, "MQ9_NKEY"),
            tls=_tls(arguments),
            name="mq9-cli",
            inbox_prefix=arguments.inbox_prefix,
            timeout=arguments.timeout,
            connect_timeout=arguments.timeout,
        ) as client:
            return await action(client, arguments)

    try:
        return asyncio.run(act())
    except errors.NoResponders as error:
        raise Failure(f"{error}", UNREACHABLE) from error
    except errors.BrokerUnavailable as error:
        raise Failure(
            f"{error}\nIs the broker running there? `mq9 serve` starts one; --server or MQ9_URL "
            "says where it is.",
            UNREACHABLE,
        ) from error
    except errors.RequestTimeout as error:
        raise Failure(
            f"{error}; it may have been carried out. --timeout waits longer.", TIMEOUT
        ) from error
    except errors.AccessDenied as error:
        denied = str(error).startswith(("this user", "permission denied"))
        hint = (
            "Ask the operator for the permission."
            if denied
            else "--user and --password, --token or --nkey say who you are."
        )
        raise Failure(f"{error}\n{hint}", REFUSED if denied else UNREACHABLE) from error
    except errors.InvalidField as error:
        raise Failure(str(error), USAGE) from error
    except errors.Mq9Error as error:
        raise Failure(_with_hint(error)) from error


def seconds(written: str) -> float:
    """A positive number of seconds."""
    try:
        number = float(written)
    except ValueError:
        number = 0
    if not 0 < number < 1e9:
        raise argparse.ArgumentTypeError(f"expected a number of seconds, found {written!r}")
    return number


def _with_hint(error: Exception) -> str:
    from mq9 import errors

    hints: dict[type[Exception], str] = {
        errors.MailboxNotFound: "`mq9 mailbox create` makes one.",
        errors.MailboxExists: "Choose another name, or leave it out for one that nobody has.",
        errors.NotGiven: "Only what the group was given with `mq9 fetch --group` can be "
        "acknowledged.",
    }
    hint = hints.get(type(error))
    return f"{error}\n{hint}" if hint else str(error)


def _setting(given: str | None, variable: str) -> str | None:
    return given or os.environ.get(variable) or None


def _tls(arguments: argparse.Namespace) -> ssl.SSLContext | None:
    given = arguments.tls_ca or arguments.tls_cert or arguments.tls_key
    if not given and "tls://" not in (_setting(arguments.server, "MQ9_URL") or ""):
        return None
    context = ssl.create_default_context()
    try:
        if arguments.tls_ca:
            context.load_verify_locations(Path(arguments.tls_ca))
        if arguments.tls_cert:
            context.load_cert_chain(arguments.tls_cert, arguments.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise Failure(f"cannot use the certificates: {error}", USAGE) from error
    return context
