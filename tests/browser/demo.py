"""A broker with something of everything, names that try to do harm included."""

import json

import nats
from tests.mail import Mail

LONG = "agent.research.planner.eu.west.1.tenant.northwind.traders.workspace." + "7f3c9b1e" * 6
SCRIPT = '<script>document.title="owned"</script><img src=x onerror="document.title=1">'
TURNED = "invoice\u202egnp.tset\u0007"

SCHEDULES = """schedules: [
  { name: "usage-report", mailbox: "notify.slack", cron: "0 2 * * *", data: { type: "daily" } }
  { name: "standup", mailbox: "agent.idle", cron: "30 9 * * 1-5", timezone: "Europe/Berlin" }
  { name: "reconcile", subject: "mq.scheduled.reconcile", cron: "0 */6 * * *", payload: "go" }
]"""


async def fill_stream(url: str) -> None:
    """A stream of JetStream with a consumer that was given some."""
    client = await nats.connect(url)
    stream = client.jetstream()
    await stream.add_stream(name="ORDERS", subjects=["orders.>"])
    for number in range(20):
        await stream.publish(f"orders.{number}", b"order %d" % number)
    reader = await stream.pull_subscribe("orders.>", durable="billing")
    for message in await reader.fetch(5):
        await message.ack_sync()
    await client.close()


def fill(mail: Mail) -> None:
    """Mailboxes, groups, agents, dead letters, delayed messages and payloads of all kinds."""
    mailboxes: dict[str, dict[str, object]] = {
        "translate.jobs": {"dead_letter": "translate.dead", "max_deliver": 3, "ack_wait_ms": 30000},
        "crawl.frontier": {"retention": "work_queue"},
        "agent.invoices": {"desc": SCRIPT, "public": True},
        LONG: {},
        "notify.slack": {},
        "agent.idle": {},
    }
    for name, fields in mailboxes.items():
        mail.done("MAILBOX.CREATE", {"name": name} | fields)
    task = {
        "task": "translate",
        "doc": "s3://in/handbook-3.docx",
        "note": SCRIPT,
        "n": [1, {"a": None}],
    }
    for number in range(60):
        level = ("critical", "urgent", "normal", "notify")[(number * 7) % 11 % 4]
        mail.deliver(
            "translate.jobs", json.dumps(task | {"number": number}).encode(), priority=level
        )
        mail.deliver("crawl.frontier", b"https://example.org/%d" % number)
    mail.deliver(
        "agent.invoices",
        b"\xff\xfe\x00\x01broken",
        priority="critical",
        key=TURNED.replace("\x07", ""),
    )
    mail.deliver("agent.invoices", SCRIPT.encode())
    mail.deliver("agent.invoices", b"")
    mail.deliver("agent.invoices", TURNED.encode(), priority="urgent")
    mail.deliver("agent.invoices", b"later", delay=3600)
    mail.deliver(LONG, b"x" * 200_000, priority="urgent")
    for entry in mail.fetch("translate.jobs", "translators", num_msgs=12):
        mail.ack("translate.jobs", "translators", entry["msg_id"], kind="term")
    mail.fetch("crawl.frontier", "crawlers", num_msgs=5)
    agents = (
        ("Invoice reader", "Reads scanned invoices and pulls out totals and tax"),
        (SCRIPT, "Extracts tables from PDF files"),
        ("Translator", "Translates manuals from German to French"),
    )
    for number, (name, text) in enumerate(agents):
        address = f"agent.{number}"
        mail.done("MAILBOX.CREATE", {"name": address})
        mail.done("AGENT.REGISTER", {"name": name, "description": text, "mailbox": address})
