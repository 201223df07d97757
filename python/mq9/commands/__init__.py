"""The commands of the protocol that do not run once per message: CREATE, QUERY, DELETE and lists.

SEND, FETCH and ACK are carried out by the core. Knows of the server only its surroundings.
"""

from mq9.commands.admin import Admin
from mq9.commands.delete import Delete
from mq9.commands.desk import Desk
from mq9.commands.mailbox import Create
from mq9.commands.public import PublicMailboxes
from mq9.commands.query import Query
from mq9.commands.surroundings import Surroundings
from mq9.commands.tokens import Tokens

__all__ = ["Commands"]


class Commands:
    """All commands of a running server; OSError if its directory cannot keep the tokens' secret."""

    def __init__(self, server: Surroundings) -> None:
        self._desk = Desk(server)
        store = server.store
        public = PublicMailboxes(store)
        create = Create(server, Tokens(store.path), public)
        admin = Admin(server)
        for command in (
            create.command,
            Query(server).command,
            Delete(store).command,
            public.command,
            admin.list,
            admin.show,
        ):
            self._desk.serve(command)

    def close(self) -> None:
        """Give up requests that are not answered yet."""
        self._desk.close()
