"""MSG.DELETE and MAILBOX.DELETE: one message of a mailbox, which may be delayed.

The payload is not looked at.
"""

from mq9.commands.address import check_address
from mq9.commands.dispatcher import Call, Command
from mq9.commands.reply import Reply
from mq9.commands.request import MAX_ID, Refusal, shown
from mq9.store import Store

# What a delay_id begins with in a subject: a msg_id never does.
_DELAYED = "d"


class DeleteReply(Reply):
    """Whether the message is gone by this request."""

    deleted: bool = False


class Delete:
    """Carries out MSG.DELETE and MAILBOX.DELETE."""

    def __init__(self, store: Store) -> None:
        self._store = store
        names = ("MSG.DELETE.>", "MAILBOX.DELETE.>")
        self.commands = [Command(name, self._answer, limit=None) for name in names]

    def _answer(self, call: Call) -> DeleteReply:
        address, dot, last = call.tail.rpartition(".")
        if not dot:
            raise Refusal("the subject must end in the mail_address and the msg_id")
        check_address(address)
        if last.startswith(_DELAYED):
            self._store.cancel_delayed(address, _number(last.removeprefix(_DELAYED), "delay_id"))
        else:
            self._store.delete(address, _number(last, "msg_id"))
        return DeleteReply(deleted=True)


def _number(text: str, name: str) -> int:
    # A longer one could not be an id, and would be slow to read.
    if text.isascii() and text.isdigit() and len(text) <= 20 and (number := int(text)) <= MAX_ID:
        return number
    raise Refusal(f"invalid {name} in the subject: expected a whole number, found {shown(text)}")
