"""The ledger of the fault tests is no rubber stamp: what is lost, doubled or reordered is found."""

import pytest
from tests.cluster.load import Load, until_done

from mq9.cluster.local import LocalCluster

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


async def test_a_ledger_that_does_not_hold_is_found_out(cluster: LocalCluster) -> None:
    load = Load(cluster)
    await load.start()
    await load.until_confirmed(300)
    await load.stop()
    assert (await load.check()).wrong == []
    # From here on clients were told what is not so.
    ledger, client = load.ledger, await load.client()
    ledger.fault = 1
    ledger.confirm("ids", "ids-1000000")
    await until_done(client, "MSG.SEND.ids", b"ids-1")
    for uid in ("7-2", "7-1"):
        await until_done(client, "MSG.SEND.box", uid.encode())
        ledger.confirm("box", uid)
    ledger.acked.add("7-2")
    ledger.newest["k1"] = 1_000_001
    # Nobody listens any more.
    await load.close()
    await until_done(client, "MSG.SEND.alice", b"alice-1000000")
    ledger.confirm("alice", "alice-1000000")
    ledger.give("it", [{"msg_id": at, "payload": f"8-{at}", "deliveries": 1} for at in (2, 1)])
    await client.close()
    verdict = await load.check()
    said = "\n".join(verdict.wrong)
    assert "ids: 1 are gone, such as ids-1000000" in said
    assert "ids: 1 are there twice, such as ids-1" in said
    assert "7-1 lies behind a later one of its sender" in said
    assert "1 came again after their ACK was confirmed" in said
    assert "keys: {'k1': 1000001} were confirmed, and older ones are there" in said
    assert "alice: 1 were not pushed, such as alice-1000000" in said
    assert "1 were given to a group behind later ones, such as 8-1" in said
    assert len(verdict.wrong) == 7
    assert (verdict.lost[1], verdict.doubled[1]) == (2, 1)
