"""A broker that a test may stop or kill and start again: same port, same data."""

from pathlib import Path

from tests.mail import Mail
from tests.peers import MQ9, Server, start


class Restarting:
    """Owns the process; the test owns the end of it."""

    def __init__(self, folder: Path, config: str = "") -> None:
        self.folder = folder
        self.config = config
        self.server: Server = start(folder, config, peer=MQ9)

    @property
    def url(self) -> str:
        return self.server.url

    def connect(self) -> Mail:
        return Mail(self.url)

    def restart(self, *, kill: bool = False) -> None:
        """Stops it, gently or not, and starts it again."""
        if kill:
            self.server.process.kill()
        self.server.stop()
        self.server = start(self.folder, self.config, port=self.server.port, peer=MQ9)

    def stop(self) -> None:
        self.server.stop()
