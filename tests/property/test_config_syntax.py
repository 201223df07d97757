"""Any text is read or refused with a place; a tree written in any style is read back equal."""

import re

from hypothesis import example, given, settings
from hypothesis import strategies as st

from mq9.config import ConfigError, from_arguments, loads
from mq9.config.parser import parse_text
from mq9.config.reading import parse_duration_ms
from mq9.config.tree import Map, Value

# Texts of the pieces that mean something reach further than any characters do.
PIECES = st.sampled_from(
    [
        *"{}[](),;:=#/'\"\\$.-\n\r\t \0",
        *("//", "\\x41", "\\xff", "\n)\n", "include ", "$HOME", "$X", "$2a$", "0", "1", "9" * 30),
        *("1.5", "1kb", "2m", "'2m'", "2024-01-31T10:00:00Z", "127.0.0.1:4222", "true", "off"),
        *("port", "listen", "host", "authorization", "users", "user", "password", "token", "tls"),
        *("permissions", "publish", "allow", "allow_responses", "accounts", "mq9", "sync", "data"),
        *("ping_interval", "http", "max_payload", "no_auth_user", "nkey", "a", "\u00e9", "\ud800"),
    ]
)
TEXTS = st.one_of(st.text(), st.binary(), st.lists(PIECES, max_size=40).map("".join))
ENVIRONMENT = {"X": "$Y", "Y": "[$X, 1]", "HOME": "two words"}


@given(TEXTS)
@settings(max_examples=1000, deadline=None)
@example("authorization { users: [{user: a, password: $Y}] }")
@example("a: " + "9" * 100_000)
@example("ping_interval: '" + "9" * 100_000 + "'")
@example("[" * 100_000)
@example("a {" * 100_000)
@example("a: '" + "\\" * 100_000)
@example('a: "' + "\\n" * 100_000)
@example("a: (" + "\n)" * 50_000)
@example("include \ud800")
def test_any_text_is_read_or_refused_with_a_place(text: str | bytes) -> None:
    refused = None
    try:
        loads(text, ENVIRONMENT)
    except ConfigError as error:
        refused = str(error)
    if refused is not None:
        assert all(re.match(r"text:[1-9]\d*:[1-9]\d*: \S", line) for line in refused.split("\n"))
        assert len(max(refused.split("\n"), key=len)) < 1000


@given(st.lists(st.one_of(st.text(), st.sampled_from(["-p", "-c", "-D", "-t", "--tls", "-1"]))))
@settings(max_examples=300, deadline=None)
def test_any_arguments_are_taken_or_refused(argv: list[str]) -> None:
    refused = "-"
    try:
        from_arguments(argv, {})
    except ConfigError as error:
        refused = str(error)
    except SystemExit:
        # Somebody asked for help.
        assert any("h" in argument for argument in argv)
    assert refused


@given(st.integers(0, 10**6), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_durations_add_up(hours: int, minutes: int, seconds: int, ms: int) -> None:
    written = f"{hours}h{minutes}m{seconds}.{ms:03}s"
    assert parse_duration_ms(written) == ((hours * 60 + minutes) * 60 + seconds) * 1000 + ms
    assert parse_duration_ms(f"-{ms}ms") == -ms


NAMES = st.text("abcXYZ019_.*>-", min_size=1, max_size=8).filter(lambda name: name != "include")
QUOTED_NAMES = st.text(st.characters(exclude_characters='\0"', exclude_categories=["Cs"]))
STRINGS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
NUMBERS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.decimals(-(10**9), 10**9, allow_nan=False, places=3).map(float)
TREES = st.recursive(
    st.one_of(STRINGS, NUMBERS, FLOATS, st.booleans()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(NAMES, QUOTED_NAMES), inner, max_size=4),
    ),
    max_leaves=20,
)
BARE_NAME = re.compile(r"[A-Za-z0-9_.*>-]+")
BARE_STRING = re.compile(r"[b-eX-Z][A-Za-z0-9_.*>:/@#-]*")


class Writer:
    """Writes a tree, choosing among the styles of the syntax wherever there is a choice."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def document(self, tree: dict[str, object]) -> str:
        settings = self._settings(tree, top=True)
        return self._gap() + (f"{{{settings}}}" if self._one_of(False, True) else settings)

    def _one_of(self, *options: str | bool) -> str | bool:
        return self._data.draw(st.sampled_from(options))

    def _gap(self) -> str:
        return str(self._one_of("", " ", "\n", "\t\n ", " # c, }\n", "\n// ] c\r\n"))

    def _settings(self, tree: dict[str, object], top: bool) -> str:
        text = self._gap()
        for name, value in tree.items():
            bare = BARE_NAME.fullmatch(name) and name.lower() != "include"
            written = name if bare and self._one_of(True, False) else f'"{name}"'
            separators = [":", " : ", "=", " = ", " ", "\t", "\n", *([] if top else [":\n"])]
            text += written + str(self._one_of(*separators)) + self._value(value)
            text += str(self._one_of("\n", " \n", ",", ", ", ";", "; ", " # c\n", " //c\n "))
            text += self._gap()
        return text

    def _value(self, value: object) -> str:
        if isinstance(value, dict):
            return "{" + self._settings(value, top=False) + "}"
        if isinstance(value, list):
            text = "[" + self._gap()
            for item in value:
                ends = (",", "\n", " ,\n", " // c\n")
                text += self._value(item) + str(self._one_of(*ends)) + self._gap()
            return text + "]"
        if isinstance(value, bool):
            return str(self._one_of(*(("true", "YES", "On") if value else ("false", "no", "OFF"))))
        if isinstance(value, int):
            return str(value)
        if isinstance(value, float):
            return f"{value:.3f}"
        assert isinstance(value, str)
        return self._string(value)

    def _string(self, value: str) -> str:
        styles = ["double"]
        if "'" not in value:
            styles.append("single")
        if BARE_STRING.fullmatch(value):
            styles.append("bare")
        style = self._one_of(*styles)
        if style == "bare":
            return value
        if style == "single":
            return f"'{value}'"
        if self._one_of(True, False):
            return '"' + "".join(f"\\x{byte:02x}" for byte in value.encode()) + '"'
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t") + '"'


def plain(value: Value | Map) -> object:
    data = value if isinstance(value, Map) else value.data
    if isinstance(data, Map):
        return {name: plain(entry.value) for name, entry in data.entries.items()}
    return [plain(item) for item in data] if isinstance(data, list) else data


@given(st.dictionaries(NAMES, TREES, max_size=5), st.data())
@settings(max_examples=200, deadline=None)
def test_a_tree_written_in_any_style_is_read_back(
    tree: dict[str, object], data: st.DataObject
) -> None:
    text = Writer(data).document(tree)
    assert plain(parse_text(text, {}).root) == tree
