"""For tests of programs that use mq9: a real broker on a free port, and ways to wait for mail.

The pytest fixtures are in `mq9.pytest_plugin`, which pytest finds by itself.
"""

from mq9.testing.broker import Broker, BrokerDied
from mq9.testing.waiting import NotInTime, mail, wait_for_mail, wait_until_done

__all__ = [
    "Broker",
    "BrokerDied",
    "NotInTime",
    "mail",
    "wait_for_mail",
    "wait_until_done",
]
