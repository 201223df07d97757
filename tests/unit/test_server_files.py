"""Whose files are: what a server keeps is for its user alone, however careless the umask."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.peers import Server, start, until
from tests.requester import Requester

from mq9.server.logs import Log
from mq9.store import Store

# Takes no rights away, so that what is missing was left out on purpose.
CARELESS = ("sh", "-c", 'umask 000; exec "$@"', "sh")


@contextmanager
def careless(folder: Path, config: str = "", *flags: str) -> Iterator[Server]:
    server = start(folder, config, *flags, around=CARELESS)
    try:
        yield server
    finally:
        server.stop()


def rights(path: Path) -> str:
    return f"{stat.S_IMODE(path.stat().st_mode):04o}"


def all_rights(folder: Path) -> dict[str, str]:
    """The rights of everything in a folder; those of folders under a name that ends in `/`."""
    found = {"/": rights(folder)}
    for path in folder.rglob("*"):
        slash = "/" if path.is_dir() else ""
        found[f"{path.relative_to(folder)}{slash}"] = rights(path)
    return found


def check_private(folder: Path) -> list[str]:
    """All names in a folder, which only its owner may use."""
    found = all_rights(folder)
    expected = {name: "0700" if name.endswith("/") else "0600" for name in found}
    assert found == expected
    return list(found)


def test_a_data_directory_and_its_export_are_private(tmp_path: Path) -> None:
    data, out = tmp_path / "server" / "data", tmp_path / "export"
    config = f'mq9 {{ export {{ dir: "{out}", every: "1s" }} }}'
    for start_number in range(2):
        with careless(tmp_path / "server", config) as server:
            with Requester(server.port) as client:
                if start_number == 0:
                    client.create("box")
                for _ in range(50):
                    client.post("box", b"x" * 1000)
                card = {"mailbox": "box", "name": "a", "description": "b"}
                assert client.ask_json("AGENT.REGISTER", **card)["error"] == ""
                client.ask_json("AGENT.DISCOVER", semantic="b")
            until(lambda: list(out.rglob("*.parquet")), "something was exported", 30)
            until(lambda: list(data.rglob("vectors*")), "vectors were kept", 60)
            check_private(data)
        if start_number == 0:
            # Without checkpoints all of the log is read, and what is damaged in it set aside.
            for checkpoint in data.glob("checkpoint-*"):
                checkpoint.unlink()
            segment = max(data.glob("segment-*"), key=lambda file: file.stat().st_size)
            content = bytearray(segment.read_bytes())
            content[20_000:20_050] = bytes(50)
            segment.write_bytes(content)
    kept = {name.partition("-")[0] for name in check_private(data)}
    assert kept >= {"/", "segment", "checkpoint", "damaged", "LOCK", "token.secret"}
    assert any(name.endswith(".parquet") for name in check_private(out))


def test_an_export_is_open_to_whom_its_folder_is(tmp_path: Path) -> None:
    out = tmp_path / "export"
    out.mkdir()
    out.chmod(0o750)
    config = f'mq9 {{ export {{ dir: "{out}", every: "1s" }} }}'
    with careless(tmp_path / "server", config) as server, Requester(server.port) as client:
        client.create("box")
        client.post("box", b"x")
        until(lambda: list(out.rglob("*.parquet")), "something was exported", 30)
    found = all_rights(out)
    assert {right for name, right in found.items() if name.endswith("/")} == {"0750"}
    assert {right for name, right in found.items() if not name.endswith("/")} == {"0640"}


@pytest.mark.parametrize(("mode", "told"), [(0o755, True), (0o750, True), (0o700, False)])
def test_a_data_directory_that_others_may_use_is_told_of(
    tmp_path: Path, mode: int, told: bool
) -> None:
    data = tmp_path / "server" / "data"
    data.mkdir(parents=True)
    data.chmod(mode)
    with careless(tmp_path / "server") as server:
        assert ("[WRN] Other users of this machine have rights" in server.log) is told
        assert (f"chmod -R go= {data}" in server.log) is told
        assert (f"rights={mode:04o}" in server.log) is told
        assert rights(data) == f"{mode:04o}", "what the operator has set stays"
        assert {rights(file) for file in data.iterdir() if file.is_file()} == {"0600"}


def test_files_for_other_programs_have_the_rights_of_nats_servers(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with careless(tmp_path / "server", "", "-P", str(pid)):
        [ports, *_] = (tmp_path / "server").glob("*.ports")
        assert (rights(pid), rights(ports)) == ("0600", "0644")


def test_a_log_is_for_its_user_and_group_also_after_it_was_moved(tmp_path: Path) -> None:
    file, old = tmp_path / "log", tmp_path / "log.1"
    with umask(0o000):
        log = Log(file=file)
        file.rename(old)
        log.reopen()
        log.close()
    assert (rights(old), rights(file)) == ("0640", "0640")


def test_a_store_makes_its_parents_as_usual(tmp_path: Path) -> None:
    with umask(0o022), Store(tmp_path / "a" / "b" / "data"):
        pass
    made = [rights(tmp_path / name) for name in ("a", "a/b", "a/b/data")]
    assert made == ["0755", "0755", "0700"]


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)
