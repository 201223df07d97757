"""The block `export` of the block `mq9`."""

from pathlib import Path

import pytest

from mq9.config import ConfigError, Export, loads


def test_defaults() -> None:
    options = loads("mq9 { export { dir: out } }", {})
    assert options.export == Export(
        dir=Path("out"), every_ms=60_000, payloads=True, keep_bytes=1 << 30
    )
    assert options.warnings == ()


def test_every_setting() -> None:
    block = '{ dir: "/x/y", every: "5s", payloads: false, keep: 64MB, keep_days: 90 }'
    options = loads(f"mq9 {{ export {block} }}", {})
    assert options.export == Export(
        dir=Path("/x/y"), every_ms=5000, payloads=False, keep_bytes=64 << 20, keep_days=90
    )


def test_without_the_block_there_is_no_export() -> None:
    assert loads("port: 4222", {}).export is None


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ('{ every: "1m" }', "1:14: no dir: an export needs a folder to write to"),
        ("{ dir: out, evry: 1 }", "unknown setting 'evry' in export; did you mean 'every'?"),
        ('{ dir: out, every: "1ms" }', "at least 100ms"),
        ("{ dir: out, payloads: 3 }", "expected true or false"),
        ("{ dir: out, keep: 0 }", "expected at least 1, found 0"),
        ("{ dir: out, keep_days: 0 }", "expected at least 1, found 0"),
        ("out", "expected a block { } for export"),
    ],
)
def test_what_is_wrong_is_told(block: str, said: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        loads(f"mq9 {{ export {block} }}", {})
    assert said in str(wrong.value)
