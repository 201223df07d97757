"""The client of mq9: a typed, asynchronous face of the protocol, over nats-py."""

from mq9.client.agents import AgentPage, AgentStatus
from mq9.client.client import Client, connect
from mq9.client.consumer import Consumer
from mq9.client.groups import GroupSummary
from mq9.client.mailboxes import GroupDetails, MailboxDetails, MailboxSummary
from mq9.client.message import DelayedMessage, Message, NewMessage
from mq9.client.sources import Broadcast
from mq9.client.subscription import Subscription

__all__ = [
    "AgentPage",
    "AgentStatus",
    "Broadcast",
    "Client",
    "Consumer",
    "DelayedMessage",
    "GroupDetails",
    "GroupSummary",
    "MailboxDetails",
    "MailboxSummary",
    "Message",
    "NewMessage",
    "Subscription",
    "connect",
]
