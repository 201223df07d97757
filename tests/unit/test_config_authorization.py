"""Who may connect: users, tokens, permissions, accounts, and what contradicts itself."""

import pytest

from mq9.config import Authorization, ConfigError, PermissionRules, loads

NKEY = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
A, B = "{user: a, password: x}", "{user: b, password: y}"


def read(text: str) -> Authorization:
    return loads(text, {}).authorization


def rules(permissions: str) -> PermissionRules:
    (user,) = read(
        f"authorization {{ users: [{{user: a, password: x, permissions: {permissions}}}] }}"
    ).users
    assert user.permissions
    return user.permissions


def test_single_user() -> None:
    found = read("authorization { username: a, pass: x, timeout: 0.5 }")
    assert (found.user, found.password, found.timeout_ms) == ("a", "x", 500)
    assert found.required


def test_token() -> None:
    assert read("authorization { token: $2a$11$abcdefghijk }").token == "$2a$11$abcdefghijk"
    assert read("authorization { token: t, timeout: '3s' }").timeout_ms == 3000


def test_users() -> None:
    found = read(
        f"authorization {{ users: [{A}, {{nkey: {NKEY}}}]\n default_permissions {{ publish: d }} }}"
        "\nno_auth_user: a"
    )
    assert [(user.name, user.password, user.nkey) for user in found.users] == [
        ("a", "x", None),
        (None, None, NKEY),
    ]
    assert found.no_auth_user == "a"
    assert found.default_permissions == PermissionRules(publish_allow=("d",))
    assert found.required


def test_no_auth_user_may_be_an_nkey() -> None:
    text = f"authorization {{ users: [{{nkey: {NKEY}}}] }}\nno_auth_user: {NKEY}"
    assert read(text).no_auth_user == NKEY


def test_nothing_required_without_users() -> None:
    options = loads("authorization { timeout: 1, users: [] }", {})
    assert not options.authorization.required
    assert "everybody may connect" in options.warnings[0]


def test_secrets_are_not_in_the_representation() -> None:
    text = "authorization { users: [{user: a, password: hidden}] }"
    assert "hidden" not in repr(loads(text, {}))
    assert "hidden" not in repr(loads("authorization { token: hidden }", {}))


@pytest.mark.parametrize(
    ("permissions", "expected"),
    [
        ("{}", PermissionRules()),
        ("{publish: a.*}", PermissionRules(publish_allow=("a.*",))),
        ("{pub: [a, b.>]}", PermissionRules(publish_allow=("a", "b.>"))),
        (
            "{publish: {allow: [a], deny: b}, subscribe: {deny: [c, d]}}",
            PermissionRules(publish_allow=("a",), publish_deny=("b",), subscribe_deny=("c", "d")),
        ),
        (
            "{sub: ['a q', 'b  *.dev', c]}",
            PermissionRules(subscribe_allow=("a q", "b *.dev", "c")),
        ),
        ("{export: a, import: b}", PermissionRules(publish_allow=("b",), subscribe_allow=("a",))),
        ("{publish: []}", PermissionRules(publish_allow=())),
        ("{publish: 'a\xa0b'}", PermissionRules(publish_allow=("a\xa0b",))),
        ("{allow_responses: false}", PermissionRules()),
        (
            "{allow_responses: true}",
            PermissionRules(publish_allow=(), responses_max=1, responses_ttl_ms=120_000),
        ),
        (
            "{publish: a, allow_responses: {max: 5, expires: '1m'}}",
            PermissionRules(publish_allow=("a",), responses_max=5, responses_ttl_ms=60_000),
        ),
        (
            "{allow_responses: {max_msgs: 0, ttl: '0s'}}",
            PermissionRules(publish_allow=(), responses_max=1, responses_ttl_ms=120_000),
        ),
        (
            "{allow_responses: {max: -1, expires: '-1s'}}",
            PermissionRules(publish_allow=(), responses_max=2**31 - 1, responses_ttl_ms=2**31 - 1),
        ),
    ],
)
def test_permissions(permissions: str, expected: PermissionRules) -> None:
    assert rules(permissions) == expected


@pytest.mark.parametrize(
    ("permissions", "message"),
    [
        ("1", "expected a block { } for permissions"),
        ("{pulbish: a}", "unknown setting 'pulbish' in permissions; did you mean 'publish'?"),
        ("{publish: {alow: a}}", "unknown setting 'alow' in publish permissions"),
        ("{publish: 'a q'}", "expected a subject, found 'a q'"),
        ("{publish: a..b}", "found 'a..b'"),
        ("{publish: '>.a'}", "found '>.a'"),
        ("{publish: ''}", "found ''"),
        ("{publish: true}", "expected a subject, a string, found true or false"),
        ("{publish: [[a]]}", "expected a subject, a string, found a list"),
        ("{subscribe: 'a b c'}", "expected `subject` or `subject queue`, found 'a b c'"),
        ("{subscribe: 'a '}", "found 'a '"),
        ("{subscribe: 'a q..x'}", "'q..x' is not a valid queue name"),
        ("{allow_responses: 5}", "expected true, false or a block { max, expires }"),
        ("{allow_responses: {expires: 60}}", "a duration in quotes"),
        ("{allow_responses: {maxx: 1}}", "did you mean 'max'?"),
    ],
)
def test_permissions_are_refused(permissions: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        rules(permissions)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("authorization: 1", "expected a block { } for authorization"),
        (
            "authorization { usr: a }",
            "unknown setting 'usr' in authorization; did you mean 'user'?",
        ),
        ("authorization { user: a }", "the password is missing"),
        ("authorization { password: a }", "the user is missing"),
        ("authorization { token: '' }", "must not be empty"),
        ("authorization { token: 5 }", "expected a string, found a whole number; put it in quotes"),
        ("authorization { user: a, password: b, token: c }", "a token and a user"),
        (f"authorization {{ token: c, users: [{A}] }}", "a token and a list of users"),
        (f"authorization {{ user: c, password: d, users: [{A}] }}", "put the single one into"),
        ("authorization { user: a, password: b, timeout: -1 }", "not negative"),
        ("authorization { user: a, password: b, timeout: x }", "found 'x'"),
        ("authorization { users: a }", "expected a list [ ] of users, each in { }, found a string"),
        ("authorization { users: [a] }", "expected a block { } for a user, found a string"),
        ("authorization { users: [{password: b}] }", "needs `user`, or `nkey`"),
        ("authorization { users: [{user: a, password: ''}] }", "must not be empty"),
        ("authorization { users: [{user: a, paswd: b}] }", "unknown setting 'paswd' in a user"),
        (
            f"authorization {{ users: [{A}\n{A}] }}",
            "text:2:1: the user 'a' is there twice, first in line 1",
        ),
        (f"authorization {{ users: [{{nkey: {NKEY[:-1]}A}}] }}", "the public nkey of a user"),
        ("authorization { users: [{nkey: UABC}] }", "the public nkey of a user"),
        (f"authorization {{ users: [{{nkey: {NKEY}, user: a}}] }}", "has no name and no password"),
        (
            "authorization { users: [{user: a, password: b, connection_types: [MQTT]}] }",
            "could never connect",
        ),
        ("authorization { auth_callout { issuer: A } }", "does not ask a service"),
        ("authorization { proxy_required: true }", "which proxy"),
        ("no_auth_user: z", "'z' and there is no list of users"),
        (f"authorization {{ users: [{A}] }}\nno_auth_user: z", "text:2:1: no_auth_user must be"),
        ("authorization { user: a, password: b }\nno_auth_user: a", "there is no list of users"),
        ("operator: a.jwt", "mq9 has no users of an operator, and nothing else says who"),
        ("accounts { SYS { users: [" + A + "] } }\nsystem_account: SYS", "has no system users"),
        (
            f"accounts {{ A {{ users: [{A}] }}, B {{ users: [{B}] }} }}",
            "2 accounts with users (A, B)",
        ),
        (
            f"accounts {{ A {{ users: [{A}] }} }}\nauthorization {{ users: [{B}] }}",
            "are in different accounts",
        ),
        ("accounts { A { foo: 1 } }", "unknown setting 'foo' in account 'A'"),
        ("accounts: 1", "expected a block { } for accounts"),
    ],
)
def test_authorization_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        loads(text, {})
    assert message in str(raised.value)


def test_errors_do_not_show_passwords() -> None:
    with pytest.raises(ConfigError) as raised:
        loads("authorization { user: a, password: $P }", {"P": "8675309"})
    assert "8675309" not in str(raised.value)


def test_users_of_one_account_are_taken() -> None:
    options = loads(
        f"accounts {{ SYS {{ users: [{B}] }}, A {{ users: [{A}], jetstream: enabled\n"
        "default_permissions { publish: p } } }\nsystem_account: SYS\nno_auth_user: a",
        {},
    )
    assert [user.name for user in options.authorization.users] == ["a"]
    assert options.authorization.default_permissions == PermissionRules(publish_allow=("p",))
    assert options.authorization.no_auth_user == "a"
    warnings = "\n".join(options.warnings)
    assert "accounts do not separate anything" in warnings
    assert "its users cannot connect" in warnings
    assert "'jetstream' is ignored" in warnings


def test_a_user_without_a_password_is_a_warning() -> None:
    options = loads("authorization { users: [{user: a}, {user: b}] }\nno_auth_user: b", {})
    assert [user.password for user in options.authorization.users] == [None, None]
    (warning,) = options.warnings
    assert warning.startswith("text:1:25: the user 'a' has no password")


def test_operator_beside_users_is_a_warning() -> None:
    options = loads(f"operator: a.jwt\nauthorization {{ users: [{A}] }}", {})
    assert "mq9 has no users of an operator" in options.warnings[0]


def test_allowed_connection_types_with_standard() -> None:
    user = "{user: a, password: b, allowed_connection_types: [standard, WEBSOCKET]}"
    assert read(f"authorization {{ users: [{user}] }}").users[0].name == "a"
