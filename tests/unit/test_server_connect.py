"""CONNECT is read as nats-server reads it, whatever a client sends."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq9.server.connect import ConnectError, ConnectOptions, parse


def test_defaults_are_those_of_nats_server() -> None:
    said = parse(b"{}")
    assert (said.verbose, said.pedantic, said.echo) == (True, True, True)
    assert (said.headers, said.no_responders, said.protocol) == (False, False, 0)
    assert said.anonymous


def test_null_is_as_if_absent() -> None:
    assert parse(b"null") == ConnectOptions()
    assert parse(b'{"verbose":null,"echo":null,"user":null}') == ConnectOptions()


def test_names_are_read_in_any_case() -> None:
    said = parse(b'{"USER":"a","Pass":"b","Auth_Token":"c"}')
    assert (said.user, said.password, said.token) == ("a", "b", "c")
    assert not said.anonymous


def test_unknown_options_are_ignored() -> None:
    assert parse(b'{"jwt":"x","tls_required":true,"new":[1,{"a":2}]}') == ConnectOptions()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[1]",
        b"7",
        b'"x"',
        b"{} x",
        b'{"verbose":"true"}',
        b'{"verbose":1}',
        b'{"user":1}',
        b'{"user":["a"]}',
        b'{"protocol":"1"}',
        b'{"protocol":1.5}',
        b'{"protocol":true}',
        b'{"protocol":NaN}',
        b"[" * 4096,
        b'{"a":' * 800,
    ],
)
def test_what_is_not_an_object_of_the_right_types_is_refused(text: bytes) -> None:
    with pytest.raises(ConnectError):
        parse(text)


def test_an_error_names_the_option_and_not_its_value() -> None:
    with pytest.raises(ConnectError, match=r"^pass: ") as caught:
        parse(b'{"pass":12345}')
    assert "12345" not in str(caught.value)


def test_secrets_are_not_shown() -> None:
    shown = repr(parse(b'{"user":"a","pass":"secret1","auth_token":"secret2","sig":"secret3"}'))
    assert "user='a'" in shown
    assert "secret" not in shown


def test_text_that_is_not_utf8_is_read_with_marks_in_its_place() -> None:
    assert parse(b'{"name":"a\xffb"}').name == "a\ufffdb"


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(text: bytes) -> None:
    with contextlib.suppress(ConnectError):
        assert isinstance(parse(text), ConnectOptions)
