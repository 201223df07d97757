"""Text of a card for searches: fields for the word index, and a text to embed.

Takes any JSON object; the fields of an A2A AgentCard get their place. Knows no index and no model.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

# Longer texts add time and noise, not findability.
MAX_NAME_CHARS = 512
MAX_FIELD_CHARS = 16_384
MAX_PASSAGE_CHARS = 800
MAX_TAGS = 256
MAX_TAG_CHARS = 128
MAX_DEPTH = 32
MAX_STRINGS = 4_096

NAME_KEYS = ("name", "title", "display_name", "displayName")
DESCRIPTION_KEYS = ("description", "summary", "about", "purpose")
TAG_KEYS = ("tags", "keywords", "labels")
SKILL_KEYS = ("name", "description", "examples")

# Fields that say how to reach or call an agent, not what it does.
TECHNICAL_KEYS = frozenset(
    {
        "additionalInterfaces",
        "authentication",
        "capabilities",
        "defaultInputModes",
        "defaultOutputModes",
        "documentationUrl",
        "iconUrl",
        "id",
        "inputModes",
        "mailbox",
        "outputModes",
        "preferredTransport",
        "protocolVersion",
        "provider",
        "security",
        "securitySchemes",
        "signatures",
        "supportedInterfaces",
        "supportsAuthenticatedExtendedCard",
        "ttl",
        "url",
        "version",
    }
)

# The last three are those of Chinese and Japanese.
SENTENCE_ENDS = (".", "!", "?", ":", ";", "\u3002", "\uff01", "\uff1f")

# No pattern here looks at a character more than a few times, whatever the text: nothing is looked
# for ahead of a match, it is asked of what has matched.
# A run that no one writes by hand: digests, keys, base64.
RUN = re.compile(r"[A-Za-z0-9+/=_-]+")
LONG_RUN = re.compile(r"[!-~]+")
SHORTEST_BLOB_CHARS = 40
SHORTEST_LONG_BLOB_CHARS = 80
BLOB_SIGN = re.compile(r"[0-9+/=_]")
# What every address has.
ADDRESS_SIGN = re.compile(r"://|data:|www\.|@")
SCHEME_END = re.compile(r"[a-zA-Z0-9+.-]")
WORD_CHAR = re.compile(r"\w")
ID_SIGN = re.compile(r"\d|/")
# Hexadecimal ids and UUIDs if they have a digit; versions; media types.
HEXADECIMAL = re.compile(r"\b[0-9a-fA-F]{8,}(?:-[0-9a-fA-F]{4,})*\b")
IDENTIFIER = re.compile(r"\bv?\d+(?:\.\d+)+\b|\b(?:text|image|audio|video|application)/[\w.+*-]+")


@dataclass(frozen=True)
class CardText:
    """The words of a card, by what they are, and the text that stands for its meaning.

    Each line of `meaning` is a passage of its own: what the agent is, its skills, its tags, and
    the rest.
    """

    name: str
    description: str
    skills: str
    tags: tuple[str, ...]
    rest: str
    meaning: str


def card_text(card: Mapping[str, object]) -> CardText:
    """The text of a card; whatever its fields hold, nothing is raised and the result is bounded."""
    name = clip(first_text(card, NAME_KEYS), MAX_NAME_CHARS)
    description = clip(all_text(card, DESCRIPTION_KEYS), MAX_FIELD_CHARS)
    skills = list(objects(card.get("skills")))
    # Examples come last: of many skills, a name says more than another's example.
    skill_texts = [prose([skill.get("name"), skill.get("description")]) for skill in skills]
    skill_texts += [item for item in items(card.get("skills")) if isinstance(item, str)]
    skill_text = joined([*skill_texts, *(prose(skill.get("examples")) for skill in skills)])
    tags = clipped_tags([card, *skills])
    unknown = without(card, {*NAME_KEYS, *DESCRIPTION_KEYS, *TAG_KEYS, "skills"})
    in_skills = [without(skill, {*SKILL_KEYS, *TAG_KEYS}) for skill in skills]
    passages = (
        joined([name, description]),
        skill_text,
        ", ".join(tags),
        prose(without(unknown, TECHNICAL_KEYS)),
    )
    lines = (clip(spoken(passage), MAX_PASSAGE_CHARS) for passage in passages)
    return CardText(
        name=name,
        description=description,
        skills=clip(skill_text, MAX_FIELD_CHARS),
        tags=tags,
        rest=clip(without_blobs(prose([unknown, in_skills])), MAX_FIELD_CHARS),
        meaning="\n".join(line for line in lines if line),
    )


def strings(value: object) -> Iterator[str]:
    """All strings in a JSON value, in order; a bounded number from a bounded depth."""
    # By far the most common, for agents are many.
    if value is None:
        return
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        yield from value[:MAX_STRINGS]
        return
    stack: list[tuple[int, object]] = [(0, value)]
    given = 0
    while stack and given < MAX_STRINGS:
        depth, here = stack.pop()
        if isinstance(here, str):
            given += 1
            yield here
        elif depth < MAX_DEPTH:
            inner = [*here.values()] if isinstance(here, Mapping) else [*items(here)]
            stack += [(depth + 1, each) for each in reversed(inner[:MAX_STRINGS])]


def items(value: object) -> Sequence[object]:
    """The items of a JSON array; anything else has none."""
    return value if isinstance(value, list | tuple) else ()


def objects(value: object) -> Iterator[Mapping[str, object]]:
    """The objects in a JSON array."""
    return (item for item in items(value)[:MAX_STRINGS] if isinstance(item, Mapping))


def prose(value: object) -> str:
    """All strings of a value as one text."""
    if value is None:
        return ""
    return value.strip() if isinstance(value, str) else joined(strings(value))


def without(holder: Mapping[str, object], keys: Iterable[str]) -> dict[str, object]:
    """The fields of an object that have none of these names."""
    left_out = frozenset(keys)
    return {key: value for key, value in holder.items() if key not in left_out}


def first_text(card: Mapping[str, object], keys: Iterable[str]) -> str:
    """The text of the first of these fields that has one."""
    return next((text for key in keys if (text := prose(card.get(key)))), "")


def all_text(card: Mapping[str, object], keys: Iterable[str]) -> str:
    """The texts of all these fields."""
    return joined(prose(card.get(key)) for key in keys)


def clipped_tags(holders: Iterable[Mapping[str, object]]) -> tuple[str, ...]:
    """Each tag once, in order."""
    found = (
        tag.strip()[:MAX_TAG_CHARS]
        for holder in holders
        for key in TAG_KEYS
        for tag in strings(holder.get(key))
    )
    return tuple(dict.fromkeys(tag for tag in found if tag))[:MAX_TAGS]


def joined(texts: Iterable[str]) -> str:
    """The texts as sentences of one text, bounded."""
    text = ""
    for bare in map(str.strip, texts):
        if text and bare:
            text += " " if text.endswith(SENTENCE_ENDS) else ". "
        text += bare
        if len(text) > MAX_FIELD_CHARS:
            break
    return text


def without_blobs(text: str) -> str:
    """The text without what only a machine reads."""
    words = text[:MAX_FIELD_CHARS].split()
    # Most texts have none of it.
    if max(map(len, words), default=0) >= SHORTEST_BLOB_CHARS:
        bare = RUN.sub(_unless_blob, " ".join(words))
        words = LONG_RUN.sub(_unless_long, bare).split()
    return " ".join(words)


def _unless_blob(run: re.Match[str]) -> str:
    found = run[0]
    is_blob = len(found) >= SHORTEST_BLOB_CHARS and BLOB_SIGN.search(found)
    return " " if is_blob else found


def _unless_long(run: re.Match[str]) -> str:
    return " " if len(run[0]) >= SHORTEST_LONG_BLOB_CHARS else run[0]


def without_address(word: str) -> str:
    """What of a word stands before a URL; nothing if it is a mail address."""
    before, at, host = word.partition("@")
    # Something before it, and a dot with something on both sides behind it.
    if before and at and "." in host[1:-1]:
        return ""
    ends = [end for mark in ("data:", "www.") if (end := _begins(word, mark)) >= 0]
    scheme = word.find("://")
    if scheme >= 0:
        start = scheme
        while start and SCHEME_END.match(word, start - 1):
            start -= 1
        while start < scheme and not word[start].isalpha():
            start += 1
        if start < scheme:
            ends.append(start)
    return word[: min(ends)] if ends else word


def _begins(word: str, mark: str) -> int:
    """Where the mark stands at the beginning of a word, with something behind it; -1: nowhere."""
    at = word.find(mark)
    while at > 0 and WORD_CHAR.match(word, at - 1):
        at = word.find(mark, at + 1)
    return at if at + len(mark) < len(word) else -1


def _unless_number(found: re.Match[str]) -> str:
    return " " if any(map(str.isdigit, found[0])) else found[0]


def spoken(text: str) -> str:
    """The text without blobs, addresses and ids."""
    bare = text[:MAX_FIELD_CHARS]
    if ADDRESS_SIGN.search(bare):
        bare = " ".join(map(without_address, bare.split()))
    bare = without_blobs(bare)
    if ID_SIGN.search(bare):
        bare = IDENTIFIER.sub(" ", HEXADECIMAL.sub(_unless_number, bare))
    # What was taken out may have left signs that now stand alone.
    return " ".join(word for word in bare.split() if any(map(str.isalnum, word)))


def clip(text: str, max_chars: int) -> str:
    """The text up to a word's end."""
    if len(text) <= max_chars:
        return text
    head, space, _ = text[:max_chars].rpartition(" ")
    return head if space else text[:max_chars]
