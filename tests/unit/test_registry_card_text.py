"""The text of a card: any JSON object has one, bounded, with everything in its place."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mq9.registry.card_text import (
    MAX_FIELD_CHARS,
    MAX_NAME_CHARS,
    MAX_PASSAGE_CHARS,
    MAX_TAG_CHARS,
    MAX_TAGS,
    card_text,
)

A2A_CARD: dict[str, Any] = {
    "mailbox": "mq9://broker/invoices",
    "protocolVersion": "0.3.0",
    "name": "Invoice Matcher",
    "description": "Reads invoices. See https://agents.example/help for more.",
    "url": "https://agents.example/a2a",
    "version": "1.2.3",
    "provider": {"organization": "Ledgerline", "url": "https://ledgerline.example"},
    "capabilities": {"streaming": True, "extensions": [{"uri": "https://x.example/ext"}]},
    "defaultInputModes": ["text/plain"],
    "skills": [
        {
            "id": "three-way",
            "name": "Three-way match",
            "description": "Compares invoice and order",
            "tags": ["erp", "accounts payable"],
            "examples": ["Match invoice 4711"],
        },
        {"id": "export", "name": "Export", "tags": ["erp"]},
    ],
    "signatures": [{"protected": "eyJhbGciOiJFUzI1NiIsInR5cCI6IkpPU0UiLCJraWQiOiJrZXktMSJ9"}],
    "region": "Serves northern Europe",
}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
keys = st.sampled_from(["name", "description", "skills", "tags", "examples", "other"]) | st.text()


def test_every_field_of_an_a2a_card_has_its_place() -> None:
    text = card_text(A2A_CARD)
    assert text.name == "Invoice Matcher"
    assert text.description.startswith("Reads invoices.")
    assert text.skills == (
        "Three-way match. Compares invoice and order. Export. Match invoice 4711"
    )
    assert text.tags == ("erp", "accounts payable")
    for word in ("Ledgerline", "northern", "three-way", "mq9://broker/invoices"):
        assert word in text.rest


def test_meaning_has_a_line_for_each_passage_and_nothing_technical() -> None:
    assert card_text(A2A_CARD).meaning.split("\n") == [
        "Invoice Matcher. Reads invoices. See for more.",
        "Three-way match. Compares invoice and order. Export. Match invoice 4711",
        "erp, accounts payable",
        "Serves northern Europe",
    ]


def test_blobs_ids_and_addresses_are_not_meant() -> None:
    text = card_text(
        {
            "description": "Mails bob@agents.example, id 3f2504e0-4f89-11d3-9a0c-0305e82c3301",
            "icon": "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNby",
            "key": "QUJD" * 40,
            "notes": "Speaks image/png and v1.2.3 of it",
        }
    )
    assert text.meaning == "Mails id\nSpeaks and of it"
    assert "QUJD" not in text.rest
    assert "Speaks" in text.rest


def test_other_shapes_than_a2a_are_understood() -> None:
    text = card_text({"title": "T", "about": "A", "skills": ["cook", {"name": 3}], "keywords": "k"})
    assert (text.name, text.description, text.skills, text.tags) == ("T", "A", "cook", ("k",))
    assert card_text({"mailbox": "a"}).meaning == ""
    assert card_text({"name": 7, "tags": {"a": ["b", 1]}}).tags == ("b",)


def test_text_in_any_script_is_kept() -> None:
    text = card_text({"name": "电费助手", "description": "查询每月电费账单。"})
    assert text.meaning == "电费助手. 查询每月电费账单。"


def test_a_huge_card_has_a_bounded_text() -> None:
    words = "word " * 200_000
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep, "deep"]
    card = {
        "name": words,
        "description": words,
        "skills": [{"name": words, "description": words, "examples": [words]}] * 500,
        "tags": [f"tag{n} {words[:200]}" for n in range(2_000)],
        "deep": deep,
        "endless": "x" * 1_000_000,
    }
    text = card_text(card)
    assert len(text.name) <= MAX_NAME_CHARS
    assert max(map(len, (text.description, text.skills, text.rest))) <= MAX_FIELD_CHARS
    assert len(text.tags) <= MAX_TAGS
    assert max(map(len, text.tags)) <= MAX_TAG_CHARS
    assert max(map(len, text.meaning.split("\n"))) <= MAX_PASSAGE_CHARS
    assert text.meaning.count("\n") <= 3


@settings(deadline=None)
@given(st.dictionaries(keys, json_values))
def test_every_object_has_a_text(card: dict[str, Any]) -> None:
    text = card_text(card)
    assert text == card_text(card)
    assert len(text.meaning.split("\n")) <= 4
