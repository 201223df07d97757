"""Configurations that pages show are accepted, and those of TLS and secrets do what is said."""

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import trustme
from tests.manage.conftest import free_port
from tests.pages import ROOT, blocks, environment_in, run_as_printed
from tests.peers import NATS_SERVER_BINARY, Serve, until

from mq9.config import loads

# Examples of the syntax, which set nothing, with a test of their own.
SYNTAX = "key: value "
FILES = ("server-cert.pem", "server-key.pem", "ca.pem")


def shown() -> list[tuple[str, str]]:
    """The configurations of all pages, each with its page."""
    pages = sorted(ROOT.glob("docs/**/*.md"))
    return [
        (f"{page.name}-{number}", block)
        for page in pages
        for number, block in enumerate(
            blocks(str(page.relative_to(ROOT)), "conf")
            + blocks(str(page.relative_to(ROOT)), "hocon")
        )
        if not block.startswith(SYNTAX)
    ]


def certificates(folder: Path) -> None:
    """Files by the names that pages use."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    for name, identity in {"server": "127.0.0.1", "client": "anna@example.com"}.items():
        made = authority.issue_cert(identity)
        made.private_key_pem.write_to_path(str(folder / f"{name}-key.pem"))
        (folder / f"{name}-cert.pem").write_bytes(b"".join(x.bytes() for x in made.cert_chain_pems))


def test_no_configuration_is_hidden_in_a_plain_block() -> None:
    settings = re.compile(r"^(?:listen|tls|authorization|mq9|jetstream|server_name)\b *[:={]")
    for page in ROOT.glob("docs/**/*.md"):
        plain = blocks(str(page.relative_to(ROOT)), "")
        assert not [block for block in plain if settings.match(block)], page


@pytest.mark.parametrize("config", [pytest.param(text, id=name) for name, text in shown()])
def test_a_configuration_of_a_page_is_accepted(config: str, tmp_path: Path) -> None:
    certificates(tmp_path)
    (tmp_path / "it.conf").write_text(config, "utf-8")
    server = [sys.executable, "-m", "mq9", "serve"]
    if "sync_interval" in config:
        if not NATS_SERVER_BINARY.exists():
            pytest.skip("needs nats-server next to the interpreter: make setup")
        server = [str(NATS_SERVER_BINARY)]
    secrets = {"BOB_PASSWORD": "b", "OPS_PASSWORD": "o", "QUEUES_URL": "postgres://a:b@c/d"}
    secrets |= {"CLOUD_API_NATS_PASS": "c", "WORKER_NATS_PASS": "w"}
    done = subprocess.run(
        [*server, "-t", "-c", "it.conf"],
        cwd=tmp_path,
        env=os.environ | secrets,
        stderr=subprocess.STDOUT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "valid" in done.stdout
    assert "[WRN]" not in done.stdout


@pytest.mark.parametrize("line", blocks("docs/configuration.md", "")[0].splitlines())
def test_a_broker_starts_as_the_page_prints_it(line: str, tmp_path: Path) -> None:
    port, other = free_port(), free_port()
    (tmp_path / "server.conf").write_text(f"listen: 127.0.0.1:{port}\n")
    shown, _, said = line.partition("#")
    command = shown.replace("4223", str(other)).replace("/srv/mq9", str(tmp_path / "srv"))
    environment = environment_in(tmp_path)
    if "test the file and exit" in said:
        subprocess.run(shlex.split(command), cwd=tmp_path, env=environment, check=True)
        return
    flags = ["--ports_file_dir", str(tmp_path)]
    with subprocess.Popen(
        [*shlex.split(command), *flags], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL
    ) as server:
        try:

            def ready() -> str | None:
                assert server.poll() is None
                for file in tmp_path.glob("mq9_*.ports"):
                    with contextlib.suppress(ValueError):
                        return str(json.loads(file.read_text("utf-8"))["nats"][0])
                return None

            ready_at = str(until(ready, "the broker is ready", 60))
            found = int(ready_at.rpartition(":")[2])
        finally:
            server.terminate()
    assert server.returncode == 0
    if "settings of a file" in said:
        assert found == port
    elif "flags alone" in said:
        assert found == other
        assert (tmp_path / "srv").is_dir()
    else:
        assert "flags override the file" in said
        assert found not in {port, other}


def test_secrets_of_the_environment_get_into_a_configuration() -> None:
    # Inside quotes a name with a dollar sign is only text.
    for name, config in shown():
        # Subjects of JetStream begin so.
        assert not re.search(r'"[^"\n]*\$(?!JS\.)[A-Z][A-Z_]+\b[^"\n]*"', config), name
    (letters,) = blocks("docs/operate/dead-letters.md", "conf")
    options = loads(letters, {"QUEUES_URL": "postgres://mq9:secret@db.example/queues"})
    assert options.dead_letters is not None
    assert options.dead_letters.postgres == "postgres://mq9:secret@db.example/queues"


def test_tls_works_as_the_page_prints_it(serve: Serve, tmp_path: Path) -> None:
    certificates(tmp_path)
    (tls,) = blocks("docs/guides/secure.md", "conf")
    for name in FILES:
        tls = tls.replace(f'"{name}"', f'"{tmp_path / name}"')
    server = serve(tls)
    url = f"tls://127.0.0.1:{server.port}"
    environment = environment_in(tmp_path)

    def rewritten(command: str) -> str:
        return command.replace("tls://127.0.0.1:4222", url)

    sessions = [b for b in blocks("docs/guides/secure.md", "console") if "tls://" in b]
    ran = run_as_printed(
        "docs/guides/secure.md", tmp_path, environment, rewritten=rewritten, sessions=sessions
    )
    assert ran == 3

    def refused(*flags: str, to: str = url) -> str:
        command = [sys.executable, "-m", "mq9", "query", "secrets", "--server", to, *flags]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 3, done
        return done.stderr

    # Without a certificate, and without the authority: each says which options are missing.
    for said in (refused("--tls-ca", "ca.pem"), refused(), refused(to=server.url)):
        assert "--tls-ca names who signed" in said, said
        assert "--tls-cert and --tls-key" in said
        assert len(said.splitlines()) == 2, said
