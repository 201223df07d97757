"""The commands of the protocol that do not run once per message: all but SEND, FETCH and ACK.

Those are carried out by the core. Knows of the server only its surroundings.
"""

from mq9.commands.admin import Admin
from mq9.commands.agent import Agents
from mq9.commands.context import ServerContext
from mq9.commands.dead_letters import DeadLetters
from mq9.commands.delete import Delete
from mq9.commands.discover import Discover
from mq9.commands.dispatcher import Dispatcher
from mq9.commands.group import ListGroups, RemoveGroup
from mq9.commands.mailbox import Create
from mq9.commands.owner import Owners
from mq9.commands.public import PublicMailboxes
from mq9.commands.query import Query
from mq9.commands.remove import Purge, Remove
from mq9.commands.schedules import Schedules
from mq9.commands.streams import Streams
from mq9.commands.tokens import Tokens
from mq9.commands.unread import Unread
from mq9.commands.update import Update
from mq9.commands.watch import Watch
from mq9.registry.registry import Registry

__all__ = ["Commands"]


class Commands:
    """All commands of a running server; OSError if its directory cannot keep the tokens' secret."""

    def __init__(self, server: ServerContext) -> None:
        self._dispatcher = Dispatcher(server)
        store = server.store
        public = PublicMailboxes(store)
        tokens = Tokens(store.path)
        owners = Owners(server, tokens)
        admin = Admin(server)
        watch = Watch(server)
        dead_letters = DeadLetters(server)
        streams = Streams(server)
        schedules = Schedules(server)
        self._registry = Registry(store, server.log, server.options.embedder)
        for command in (
            Create(server, tokens, owners, public).command,
            Update(server, owners, public).command,
            Remove(store, owners).command,
            RemoveGroup(store, owners).command,
            ListGroups(owners).command,
            Purge(store, owners).command,
            Query(server).command,
            *Delete(store).commands,
            Unread(server, owners).command,
            public.command,
            admin.status,
            admin.list,
            admin.show,
            watch.activity,
            watch.access,
            dead_letters.replay,
            dead_letters.resolve,
            dead_letters.resolved,
            streams.query,
            streams.dead,
            schedules.fire,
            schedules.note,
            schedules.list,
            *Agents(server, self._registry).commands,
            Discover(server.clients, self._registry).command,
        ):
            self._dispatcher.serve(command)

    def start(self) -> None:
        """Begin with what takes longer; the event loop runs by now."""
        self._registry.start()

    def registry(self) -> dict[str, int]:
        """How the registry of agents is."""
        return self._registry.health()

    def close(self) -> None:
        """Give up requests that are not answered yet."""
        self._dispatcher.close()
        self._registry.close()
