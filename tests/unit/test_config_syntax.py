"""The syntax of configuration files: what is read, and where an error is said to be."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mq9.config import ConfigError
from mq9.config.parser import MAX_DEPTH, parse_file, parse_text
from mq9.config.tree import Map, Value


def plain(value: Value | Map) -> object:
    data = value if isinstance(value, Map) else value.data
    if isinstance(data, Map):
        return {name: plain(entry.value) for name, entry in data.entries.items()}
    return [plain(item) for item in data] if isinstance(data, list) else data


def read(text: str | bytes, environment: Mapping[str, str] | None = None) -> object:
    return plain(parse_text(text, environment or {}).root)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("text", "text"),
        ("nats://user:pass@host:4222/x?y=1", "nats://user:pass@host:4222/x?y=1"),
        ("a.*.b.>", "a.*.b.>"),
        ("a-b_c", "a-b_c"),
        ("a#b", "a#b"),
        ("a//b", "a//b"),
        ('a"b', 'a"b'),
        ("a\\tb", "a\tb"),
        ("\\x41b", "Ab"),
        ('"a b"', "a b"),
        ("'a b'", "a b"),
        ("''", ""),
        ('"a\\n\\t\\r\\"\\\\\\x41\\xc3\\xa9"', 'a\n\t\r"\\A\u00e9'),
        ("'a\\n'", "a\\n"),
        ("'a\nb'", "a\nb"),
        ('"$X"', "$X"),
        ("$2a$11$abc/def.", "$2a$11$abc/def."),
        ("$2b$11$abc", "$2b$11$abc"),
        ("$2y$11$abc", "$2y$11$abc"),
        ("(\nline 1\n ) line 2\n)", "\nline 1\n ) line 2\n"),
        ("true", True),
        ("YES", True),
        ("On", True),
        ("false", False),
        ("no", False),
        ("off", False),
        ('"true"', "true"),
        ("truethy", "truethy"),
        ("0", 0),
        ("-12", -12),
        ("007", 7),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("1k", 1000),
        ("1K", 1000),
        ("-2k", -2000),
        *((f"3{suffix}", 3 * 1024) for suffix in ("kb", "Ki", "KIB")),
        ("1m", 10**6),
        *((f"1{suffix}", 2**20) for suffix in ("MB", "mi", "MiB")),
        ("1g", 10**9),
        ("1gb", 2**30),
        ("1t", 10**12),
        ("1tb", 2**40),
        ("1p", 10**15),
        ("1pi", 2**50),
        ("1e", 10**18),
        ("1eb", 2**60),
        ("1.5", 1.5),
        ("-0.25", -0.25),
        ("2024-02-29T01:02:03Z", datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC)),
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1:-1", "127.0.0.1:-1"),
        ("2ms", "2ms"),
        ("1h30m", "1h30m"),
        ("1kx", "1kx"),
        ("5s", "5s"),
        ("8080:80", "8080:80"),
        ("[]", []),
        ("[1, 2]", [1, 2]),
        ("[a,b,]", ["a", "b"]),
        ("[\n a # one\n b // two\n\n 'c', d\n]", ["a", "b", "c", "d"]),
        ("[[1], {x: y}]", [[1], {"x": "y"}]),
        ("{}", {}),
        ("{x: 1, y: 2; z: 3}", {"x": 1, "y": 2, "z": 3}),
        ("{\n x 1\n y=2 # c\n z\n{ w\t3 }\n}", {"x": 1, "y": 2, "z": {"w": 3}}),
        ("{x:\n1\ny: \n [\n]\n}", {"x": 1, "y": []}),
        ("{\"a b\": 1, 'c:d' 2}", {"a b": 1, "c:d": 2}),
    ],
)
def test_value_means(written: str, meant: object) -> None:
    for separator in (":", ": ", " = ", "=", " ", " \n"):
        assert read(f"k{separator}{written}\n") == {"k": meant}
    found = read(f"k: {written}")
    assert found == {"k": meant}
    assert isinstance(found, dict)
    assert type(found["k"]) is type(meant)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("", {}),
        ("\n# nothing\n // at all", {}),
        ("a: 1; b: 2, c: 3", {"a": 1, "b": 2, "c": 3}),
        ("a: 1\r\nb: 2\r\n", {"a": 1, "b": 2}),
        ("a {b: 1} # c\nd: 2", {"a": {"b": 1}, "d": 2}),
        ('{"a": 1, "b": [true, {"c": "d"}]}\n', {"a": 1, "b": [True, {"c": "d"}]}),
        ("# c\n{\n a: 1\n} # c\n", {"a": 1}),
        ("include: x", {"include": "x"}),
        ("a: 1\na: 2", {"a": 2}),
        (b"\xef\xbb\xbfa: 1", {"a": 1}),
    ],
)
def test_text_means(text: str | bytes, meant: object) -> None:
    assert read(text) == meant


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("a: 1\n  b", "2:3", "'b' has no value"),
        ("a:\n1", "1:1", "'a' has no value"),
        ("a: {b: }", "1:5", "'b' has no value"),
        ("a: {b: ,}", "1:5", "'b' has no value"),
        (": 1", "1:1", "expected the name of a setting, found ':'"),
        ("a: 1,, b: 2", "1:6", "found ','"),
        ("a: {x: 1;;}", "1:10", "found ';'"),
        ("a{b: 1}", "1:2", "after the name 'a', found '{'"),
        ("a: 1\n}", "2:1", "this } closes nothing"),
        ("a: {\n b: 1\n", "1:4", "no closing }"),
        ("a: [1\n[2", "2:1", "no closing ]"),
        ("{a: 1", "1:1", "no closing }"),
        ("{a: 1} b: 2", "1:8", "expected the end of the file"),
        ("a: b c", "1:6", "expected ',', ';', '}' or a new line after a value, found 'c'"),
        ("a: [b c]", "1:7", "expected ',', ']' or a new line after a value, found 'c'"),
        ("a: [b;c]", "1:6", "found ';'"),
        ("a: [b}", "1:6", "found '}'"),
        ("a: [b,,]", "1:7", "found ','"),
        ("a: [,]", "1:5", "expected a value, found ','"),
        ("a: {b: 1]", "1:9", "found ']'"),
        ("a: {b: 1} c: 2", "1:11", "found 'c'"),
        ("\n a: 'b", "2:5", "no closing '"),
        ('a: "b\n', "1:4", 'no closing "'),
        ("a: {'b: 1}", "1:5", "no closing '"),
        ("a: (\nb", "1:4", "a line with nothing but ')'"),
        ("a: (b)", "1:4", "a line with nothing but ')'"),
        ('a: "b\\q"', "1:6", "unknown escape"),
        ('a: "\\x4"', "1:5", "two hexadecimal digits"),
        ('a: "\\xff"', "1:4", "not UTF-8"),
        ("a: b'c'", "1:5", "a quote inside a value"),
        ("a: .5", "1:4", "starts with a digit"),
        ("a: -x", "1:4", "neither a number"),
        ("a: 1.x", "1:4", "neither a number"),
        ("a: 1.5m", "1:4", "neither a number"),
        ("a: 1-2", "1:4", "neither a number"),
        ("a: 1kbb", "1:4", "neither a number"),
        ("a: 2024-02-30T00:00:00Z", "1:4", "no such date"),
        ("a: 9223372036854775808", "1:4", "64 bits"),
        ("a: 9e\nb: 10eb", "2:4", "64 bits"),
        (f"a: {'9' * 5000}", "1:4", "64 bits"),
        (f"a: {'9' * 400}.0", "1:4", "out of range"),
        ("a: b\0", "1:5", "NUL"),
        (b"a: 1\nb: \xe9\xff", "2:4", "not UTF-8"),
        ("a: $NOT_SET", "1:4", "$NOT_SET is set neither"),
        ("b: $a\na: 1", "1:4", "$a is set neither"),
        ("include", "1:1", "'include' has no value"),
        ("include [a]", "1:9", "expected the name of a file"),
        ("a: " + "[" * 2000, f"1:{MAX_DEPTH + 4}", "more than 100"),
        ("a {" * 2000, f"1:{MAX_DEPTH * 3 + 3}", "more than 100"),
    ],
)
def test_error_says_where_and_what(text: str | bytes, place: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(text)
    assert str(raised.value).startswith(f"text:{place}: ")
    assert message in str(raised.value)


def test_values_remember_their_place() -> None:
    entries = parse_text("a: 1\n b { c:  [x,\n   y] }", {}, "my.conf").root.entries
    assert str(entries["a"].place) == "my.conf:1:1"
    assert str(entries["a"].value.place) == "my.conf:1:4"
    assert isinstance(inner := entries["b"].value.data, Map)
    assert str(inner.entries["c"].value.place) == "my.conf:2:10"
    assert isinstance(items := inner.entries["c"].value.data, list)
    assert [str(item.place) for item in items] == ["my.conf:2:11", "my.conf:3:4"]


def test_a_name_set_twice_is_noticed() -> None:
    assert parse_text("a: 1\nb: 2\na: 3", {}).warnings == [
        "text:3:1: 'a' was set before, in line 1; this later value counts"
    ]


@pytest.mark.parametrize(
    ("text", "environment", "meant"),
    [
        ("a: 1\nb: $a", {}, {"a": 1, "b": 1}),
        ("a: 1\nb { c: $a }", {}, {"a": 1, "b": {"c": 1}}),
        ("a: 1\nb { a: 2, c: [$a] }", {}, {"a": 1, "b": {"a": 2, "c": [2]}}),
        ("a: 1\nb: $a\na: 2", {}, {"b": 1, "a": 2}),
        ("a: {x: 1}\nb: $a", {}, {"a": {"x": 1}, "b": {"x": 1}}),
        ("a: $X", {"X": "12"}, {"a": 12}),
        ("a: $X", {"X": "1MB"}, {"a": 2**20}),
        ("a: $X", {"X": "yes"}, {"a": True}),
        ("a: $X", {"X": "'12'"}, {"a": "12"}),
        ("a: $X", {"X": "[a, b]"}, {"a": ["a", "b"]}),
        ("a: $X", {"X": ""}, {"a": ""}),
        ("a: $X", {"X": "$Y", "Y": "y"}, {"a": "y"}),
        ("X: 1\na: $X", {"X": "2"}, {"X": 1, "a": 1}),
        ("a: [$X,$X]", {"X": "2"}, {"a": [2, 2]}),
    ],
)
def test_reference_stands_for(text: str, environment: dict[str, str], meant: object) -> None:
    assert read(text, environment) == meant


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"X": "$X"}, "in a circle: $X -> $X"),
        ({"X": "$Y", "Y": "$X"}, "in a circle: $X -> $Y -> $X"),
        ({"X": "[1, $Y]"}, "$Y is set neither"),
        ({"X": "two words"}, "cannot be read as one value"),
        ({"X": "1\nb: 2"}, "more than one value"),
        ({f"V{i}": f"$V{i + 1}" for i in range(5000)} | {"X": "$V0"}, "more than 100"),
    ],
)
def test_reference_that_leads_nowhere(environment: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read("a: $X", environment)
    assert str(raised.value).startswith("text:1:4: ")
    assert message in str(raised.value)


def test_errors_do_not_show_what_the_environment_holds() -> None:
    with pytest.raises(ConfigError) as raised:
        read("a: $X", {"X": "hunter 2"})
    assert "hunter" not in str(raised.value)
    assert "2" not in str(raised.value)


def test_include_is_relative_to_the_file_that_includes(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "main.conf").write_text(
        "a: 1\nb { include 'inner/b.conf'; y: 2 }\ninclude inner/b.conf\nz: $x\nx: 9"
    )
    (inner / "b.conf").write_text('x: 1\ninclude "c.conf"\n')
    (inner / "c.conf").write_text("c: [3]")
    parsed = parse_file(tmp_path / "main.conf", {})
    assert plain(parsed.root) == {
        "a": 1,
        "b": {"x": 1, "c": [3], "y": 2},
        "c": [3],
        "z": 1,
        "x": 9,
    }
    assert parsed.warnings == []
    assert parsed.root.entries["c"].place.file == str(inner / "c.conf")


def test_included_file_cannot_be_read(tmp_path: Path) -> None:
    main = tmp_path / "main.conf"
    main.write_text("a: 1\n include 'gone.conf'")
    with pytest.raises(ConfigError, match=r"main\.conf:2:10: cannot read .*gone\.conf: No such"):
        parse_file(main, {})
    with pytest.raises(ConfigError, match=r"cannot read .*: Is a directory"):
        parse_file(tmp_path, {})


def test_files_that_include_each_other(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text("include b.conf")
    (tmp_path / "b.conf").write_text("x: 1\ninclude './a.conf'")
    with pytest.raises(ConfigError, match=r"b\.conf:2:9: .* in a circle: a\.conf -> b\.conf"):
        parse_file(tmp_path / "a.conf", {})


def test_includes_do_not_multiply_without_end(tmp_path: Path) -> None:
    for level in range(30):
        (tmp_path / f"{level}.conf").write_text(f"include {level + 1}.conf\n" * 8)
    (tmp_path / "30.conf").write_text("#" * 1_000_000)
    with pytest.raises(ConfigError, match="larger than"):
        parse_file(tmp_path / "0.conf", {})
