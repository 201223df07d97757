"""A PostgreSQL of a test's own, which can be killed and started again."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

from tests.peers import until

_PORT_NAME = ".s.PGSQL.5432"


def binaries() -> Path | None:
    """Where the server's programs lie; Debian does not put them on PATH."""
    on_path = shutil.which("initdb")
    found = (
        [Path(on_path).resolve()]
        if on_path
        else sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    )
    return found[-1].parent if found else None


class Postgres:
    """Data and process; listens on loopback, and asks nobody for a password."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        # It refuses to run as root, and nobody else may look into the folders of tests.
        self._user = "postgres" if os.getuid() == 0 else None
        self._folder = Path(tempfile.mkdtemp(prefix="mq9-postgres-"))
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = int(found.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "--auth=trust", "--username=mq9", "--no-sync", str(self._data))
        self.start()
        self.query("CREATE DATABASE letters", database="postgres")

    @property
    def url(self) -> str:
        return f"postgres://mq9@127.0.0.1:{self.port}/letters"

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [self._programs / program, *arguments],
            user=self._user,
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self) -> None:
        options = ("-p", str(self.port), "-h", "127.0.0.1", "-k", str(self._folder), "-D")
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", *options, str(self._data)],
                user=self._user,
                cwd=self._folder,
                stdout=log,
                stderr=log,
            )
        until(self._answers, "PostgreSQL answers", 60)

    def _answers(self) -> bool:
        address = ("-h", "127.0.0.1", "-p", str(self.port))
        done = subprocess.run(
            [self._programs / "pg_isready", "-q", *address, "-d", "postgres", "-U", "mq9"],
            check=False,
        )
        return done.returncode == 0

    def kill(self) -> None:
        """The server and all its helpers, at once."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(30)
        self._process = None

    def query(self, statement: str, database: str = "letters") -> list[list[str]]:
        """The rows of an answer, as text."""
        address = ("-h", "127.0.0.1", "-p", str(self.port), "-U", "mq9", "-d", database)
        out = self._run("psql", "-X", "-q", "-A", "-t", "-F", "\t", *address, "-c", statement)
        return [line.split("\t") for line in out.splitlines()]

    def close(self) -> None:
        if self._process is not None:
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
