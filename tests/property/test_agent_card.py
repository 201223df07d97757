"""Cards: what a trimmed one keeps is as it was written, and depth is what a parser would say."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mq9.commands.agent_card import read_card, with_fields
from mq9.commands.request import MAX_DEPTH, Refusal

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)
INDENTS = st.sampled_from([None, 0, 2, "\t"])


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=4), VALUES), st.sets(st.text(max_size=4)), INDENTS)
def test_a_trimmed_card_has_the_fields_asked_for(
    card: dict[str, object], more: set[str], indent: int | str | None
) -> None:
    wanted = sorted(set(sorted(card)[::2]) | more)
    trimmed = with_fields(json.dumps(card, indent=indent).encode(), wanted)
    assert json.loads(trimmed) == {name: card[name] for name in card if name in wanted}


def test_what_is_kept_is_as_it_was_written() -> None:
    body = b'{ "a" : 1.10 , "b":{"x":[1 , 2]},\n"c":"\\u00e9\xc3\xa9}", "mailbox":"m"}'
    assert with_fields(body, ["a", "c"]) == b'{"a" : 1.10,"c":"\\u00e9\xc3\xa9}"}'


@settings(deadline=None)
@given(st.integers(1, 2 * MAX_DEPTH), st.text(alphabet='[]{}"\\', max_size=20), st.booleans())
def test_depth_is_that_of_the_brackets_outside_of_texts(
    depth: int, text: str, objects: bool
) -> None:
    inner: object = text
    for _ in range(depth - 1):
        inner = {text: inner} if objects else [inner, [text]]
    # Lists have one more beside the innermost text.
    deepest = depth if objects or depth == 1 else depth + 1
    body = json.dumps({"mailbox": "a", "x": inner}).encode()
    if deepest <= MAX_DEPTH:
        assert read_card(body).body == body
    else:
        with pytest.raises(Refusal, match="nested too deeply"):
            read_card(body)
