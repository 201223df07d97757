"""What messages say of themselves, in headers and payloads that senders choose."""

import json

import pytest


@pytest.fixture(autouse=True)
def _needs_spark() -> None:
    pytest.importorskip("pyspark", reason="needs Spark: pip install 'mq9[spark]'")


def test_a_long_name_is_cut_and_stays_another_than_its_like() -> None:
    import pyarrow as pa

    from mq9.lake import said

    header = pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))
    long, like, short = "ä" * 1_000_000, "ä" * 1_000_001, "ä" * 128
    in_header = [{"name": "From", "value": long}, {"name": "mq9-correlation-id", "value": short}]
    payload = json.dumps({"from": like, "correlation_id": long, "conversation_id": ""}).encode()
    found = said.said(
        pa.array([in_header, [], []], header), pa.array([b"", payload, payload], pa.binary())
    )
    names = found["sender"].to_pylist()
    assert len(set(names)) == 2
    assert names[1] == names[2]
    for name in names:
        assert name.startswith("ä" * 90)
        assert len(name.encode()) <= said.LONGEST
    assert found["correlation"].to_pylist()[0] == short
    # The same text is the same, whatever it names.
    assert found["correlation"].to_pylist()[1] == names[0]
