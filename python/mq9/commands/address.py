"""The format of mail addresses: the rules of the store, which checks them only on creation."""

import re

from mq9.commands.request import Refusal, shown

MAX_ADDRESS = 128

_GOOD = re.compile(r"[a-z0-9]+(?:\.[a-z0-9]+)*")
_CHARACTERS = re.compile(r"[a-z0-9.]*")


def check_address(address: str, field: str = "mail_address") -> None:
    """Refuse what cannot be an address, with the rule it breaks."""
    if len(address) <= MAX_ADDRESS and _GOOD.fullmatch(address):
        return
    raise Refusal(f"invalid {field} {shown(address[:MAX_ADDRESS], MAX_ADDRESS)}: {_rule(address)}")


def _rule(address: str) -> str:
    if not address:
        return "it must not be empty"
    if len(address.encode()) > MAX_ADDRESS:
        return f"it must have at most {MAX_ADDRESS} characters"
    if re.search("[A-Z]", address):
        return "it must be lowercase"
    if not _CHARACTERS.fullmatch(address):
        return "it may hold only a-z, 0-9 and dots"
    if address.startswith(".") or address.endswith("."):
        return "it must not begin or end with a dot"
    return "it must not hold two dots in a row"
