"""Requests: JSON in, a checked model out, or words that say what is wrong and where.

Owns how strict a request is read. Knows no command.
"""

from functools import cache
from typing import Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError, from_json

from mq9._core import json_select

MAX_SECONDS = 100 * 366 * 24 * 3600
"""The longest life that can be asked for: a hundred years."""
MAX_ID = 2**64 - 1
MAX_DEPTH = 64
"""Most levels of objects and lists, the outermost included."""

_SHOWN = 80
_OUT_OF_RANGE = "out_of_range"


class Refusal(Exception):  # noqa: N818
    """A request that is not carried out; the text is for its sender."""

    def __init__(self, text: str, kind: str = "invalid_request") -> None:
        """`kind` is the word that tells programs why."""
        super().__init__(text)
        self.kind = kind


class Request(BaseModel):
    """The body of a request: fields of the right type, null as if left out, others ignored."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class Nothing(Request):
    """A request that has no fields."""


Body = TypeVar("Body", bound=Request)


def between(low: int, high: int) -> AfterValidator:
    """For `Annotated`: the number must be from `low` to `high`."""

    def check(value: int) -> int:
        if not low <= value <= high:
            raise PydanticCustomError(_OUT_OF_RANGE, f"it must be from {low} to {high}")
        return value

    return AfterValidator(check)


def read(model: type[Body], payload: bytes) -> Body:
    """The request in a payload; an empty one is `{}`."""
    if not payload.strip():
        return model()
    try:
        # What nobody asks for is passed over: no objects are made of it.
        known = json_select(payload, _names(model), max_depth=MAX_DEPTH, unique=False)
    except ValueError as error:
        raise Refusal(str(error)) from None
    fields = parsed(known)
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        [first, *_] = error.errors(include_url=False)
        raise Refusal(_words(first)) from None


def parsed(known: bytes) -> dict[str, Any]:
    """The objects of what was picked out of a request; numbers may have too many digits."""
    try:
        fields: dict[str, Any] = from_json(known, allow_inf_nan=False)
    except ValueError as error:
        raise Refusal(f"invalid request: {error}") from None
    return fields


@cache
def _names(model: type[Request]) -> tuple[str, ...]:
    return tuple(model.model_fields)


def shown(value: object, most: int = _SHOWN) -> str:
    """A value of a request as an error quotes it: short, and never more than one line."""
    if isinstance(value, str):
        cut = value if len(value) <= most else f"{value[:most]}..."
        return '"' + "".join(map(_quoted, cut)) + '"'
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    # Python refuses to write out numbers of thousands of digits.
    if isinstance(value, int):
        return str(value) if abs(value) < 2**80 else "a number of too many digits"
    if isinstance(value, float):
        return repr(value)
    return "an object" if isinstance(value, dict) else "a list"


def _quoted(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode()


_EXPECTED: dict[str, str] = {
    "int_type": "a whole number",
    "string_type": "a string",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
}


def _words(error: ErrorDetails) -> str:
    where = "".join(f"[{at}]" if isinstance(at, int) else f".{at}" for at in error["loc"])[1:]
    given = shown(error["input"])
    if error["type"] == _OUT_OF_RANGE:
        return f"{where} is {given}: {error['msg']}"
    if error["type"] == "literal_error":
        expected = error["ctx"]["expected"].replace("'", '"')
    else:
        expected = _EXPECTED.get(error["type"], error["msg"])
    return f"invalid {where}: expected {expected}, found {given}"
