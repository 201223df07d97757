"""Pages whose commands are run as they are printed, and the few commands that are not."""

import importlib.util
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.pages import NATS_CLI, ROOT, blocks, environment_in, run_as_printed
from tests.peers import Serve

# Pages that a broker of their own is run for, with its flags.
SESSIONS: Mapping[str, tuple[str, ...]] = {
    "docs/tutorial.md": (),
    "docs/ladder.md": (),
    "docs/queues.md": ("-js",),
    "docs/server.md": (),
    "docs/guides/exactly-once.md": (),
    "docs/guides/hip-0055.md": (),
    "docs/guides/migrate.md": (),
    "docs/guides/retries.md": (),
    "docs/guides/schedule.md": (),
    "docs/guides/secure.md": (),
}
NEEDS_NATS = {"docs/queues.md", "docs/server.md"}

# Pages with a runner of their own.
ELSEWHERE = {
    "README.md": "tests/integration/test_cli_docs.py",
    "docs/cli.md": "tests/integration/test_cli_docs.py",
    "docs/export.md": "tests/integration/test_export_docs.py",
    "docs/files.md": "tests/docs/test_files_page.py",
    "docs/guides/backup.md": "tests/docs/test_sessions.py",
    "docs/guides/cluster.md": "tests/docs/test_operator_pages.py",
    "docs/management.md": "tests/docs/test_operator_pages.py",
    "docs/guides/push.md": "tests/docs/test_push_page.py",
    "docs/operate/alert.md": "tests/docs/test_operate_pages.py",
    "docs/operate/configure.md": "tests/docs/test_operate_pages.py",
    "docs/operate/dead-letters.md": "tests/docs/test_operate_pages.py",
    "docs/operate/monitor.md": "tests/docs/test_operate_pages.py",
    "docs/operate/scale.md": "tests/docs/test_operate_pages.py",
    "docs/operate/upgrade.md": "tests/docs/test_operate_pages.py",
    "docs/protocol.md": "tests/docs/test_protocol_page.py",
}

# What runs the programs and queries of a page, besides those that its session saves and starts.
PROGRAMS = {
    ("README.md", "python"): ("integration/test_client_docs.py", "unit/test_store_docs.py"),
    ("docs/client.md", "python"): ("integration/test_client_docs.py",),
    ("docs/export.md", "python"): ("integration/test_export_docs.py",),
    ("docs/files.md", "python"): ("docs/test_files_page.py",),
    ("docs/guides/push.md", "java"): ("docs/test_push_page.py",),
    ("docs/langchain.md", "python"): ("langchain/test_langchain.py",),
    ("docs/mcp.md", "json"): ("mcp/test_mcp.py",),
    ("docs/migrate-robustmq.md", "python"): ("compat/test_compat.py",),
    ("docs/operate/alert.md", "yaml"): ("docs/test_operate_pages.py",),
    ("docs/operate/monitor.md", "yaml"): ("docs/test_operate_pages.py",),
    ("docs/registry.md", "python"): ("docs/test_registry_page.py",),
    ("docs/spark.md", "python"): ("spark/test_batch_and_stream.py",),
    ("docs/spark.md", "sql"): ("spark/test_batch_and_stream.py",),
    ("docs/store.md", "python"): ("unit/test_store_docs.py",),
    ("docs/testing.md", "python"): ("docs/test_testing_page.py",),
}
# Commands are those of the test above, configurations those of test_configurations.py.
OTHERS = {"", "bash", "conf", "console", "hocon", "sh"}

# Lines that this file does not type in, and what does or why nothing does; `*` stands for the rest.
BUILT = "`make test-wheel` installs the wheel and, from the clone, `.[manage]`"
EXTRA = "the tests of the extra run with what `make setup` installed of it"
MACHINE = "changes the whole machine; tests/manage/test_deploy.py reads the unit"
CLUSTER = "needs a cluster; tests/manage/test_deploy.py checks what is applied"
FOLDERS = "tests/docs/test_operator_pages.py does it, in other folders"
LAKE = "tests/spark/test_lake_commands.py types in what the page begins with"
MINUTES = "takes minutes; a part of CI of its own"
FLAGS = "tests/docs/test_configurations.py starts a broker with each"
NOT_RUN = {
    "python3 -m venv env": BUILT,
    ". env/bin/activate": BUILT,
    "pip install .": BUILT,
    "pip install '.[manage]'": BUILT,
    "pip install dist/mq9-*.whl": BUILT,
    "pip install '.[langchain]'": EXTRA,
    "pip install '.[mcp]'": EXTRA,
    "pip install '.[semantic]'": EXTRA,
    "pip install '.[spark]'": EXTRA,
    "docker build *": "needs a daemon",
    "docker run *": "needs a daemon",
    "sudo *": MACHINE,
    "kubectl *": CLUSTER,
    "make serve": "the same as `make setup`, which every run begins with, and `mq9 serve`",
    "make test": "runs this",
    "make help": "prints the targets",
    "mq9 serve": "starts the broker that the commands after it are run with",
    "mq9 serve -js -sd ./data": "the same, with flags that SESSIONS has",
    "mq9 serve --data fresh": "the same; tests/docs/test_protocol_page.py has a fresh folder",
    "mq9 serve -c server.conf": FLAGS,
    "mq9 serve -p 4223 --data /srv/mq9": FLAGS,
    "mq9 serve -c server.conf -p -1": FLAGS,
    "mq9 serve -c server.conf -t": FLAGS,
    "mq9 mcp --http 127.0.0.1:8056": "tests/mcp starts it so",
    "npx @modelcontextprotocol/inspector *": "tests/mcp calls it, where it is installed",
    "mq9 cluster status *": "has addresses of machines; test_operator_pages.py runs it",
    "mq9 cluster seed *": FOLDERS,
    "mq9 cluster join *": FOLDERS,
    "mq9 cluster leave *": FOLDERS,
    "mq9 cluster reseed *": FOLDERS,
    "mq9 agent find *": "docs/cli.md has the same commands, with what they print",
    "mq9 traces *": "needs a collector; tests/manage/test_traces.py has one",
    "mq9 export --data mq9-data --out export": LAKE,
    "mq9 lake *": LAKE,
    "spark-submit *": "needs a cluster; tests/spark/test_cluster.py runs the job on one",
    "make faults *": MINUTES,
    "make faults": MINUTES,
    "./scripts/mount-lazyfs.sh *": "LazyFS, which drops what was not synced; needs FUSE",
    "mkdir /mnt/lazy/mq9": "the same",
}
# Where a block is something to type in: any of its lines begins like this.
A_COMMAND = re.compile(
    r"^(?:\$ )?(?:[A-Z_0-9]+=\S+ )*(?:(?:mq9|nats|pip|pipx|python3?|npx|docker|cp|mkdir|"
    r"spark-submit|curl|kill|make|sudo|kubectl|zos-mq|go|npm|git)\b|\./\S+ )(?! *[:={(])",
    re.MULTILINE,
)


@pytest.mark.parametrize("page", SESSIONS)
def test_a_page_works_as_printed(page: str, serve: Serve, tmp_path: Path) -> None:
    if page in NEEDS_NATS and shutil.which("nats", path=str(NATS_CLI)) is None:
        pytest.skip("needs the nats command line: make nats-cli")
    config = "".join(blocks(page, "hocon"))
    # Side by side with other tests, each broker has a port of its own.
    config = re.sub(r"^listen:.*$", "", config, flags=re.MULTILINE)
    server = serve(f"{config}\nhttp: 127.0.0.1:-1", *SESSIONS[page])
    (tmp_path / "mq9-data").symlink_to(server.log_file.parent / "data")
    if page == "docs/server.md":
        (tmp_path / "mq9-data" / "damaged-1").write_bytes(b"x")

    def rewritten(command: str) -> str:
        if "mq9 lake report" in command and importlib.util.find_spec("pyspark") is None:
            return "echo 'page  report/report.html'"
        if re.match(r"nats sub .*&$", command):
            # Readers take a while between two commands.
            url = f"{server.monitor_url}/subsz?subs=1"
            return f"{command}\nuntil curl -s '{url}' | grep -q trace; do sleep 0.05; done"
        # It ends when the message is there; only a busy machine needs more than the page says.
        patient = re.sub(r"--wait (?:20|60)\b", "--wait 300", command)
        return patient.replace("/var/backups", str(tmp_path))

    # Those about TLS need another broker: test_configurations.py.
    shown = [block for block in blocks(page, "console") if "tls://" not in block]
    environment = environment_in(tmp_path, server.url)
    assert run_as_printed(page, tmp_path, environment, rewritten=rewritten, sessions=shown)


def test_a_backup_is_made_and_looked_at(serve: Serve, tmp_path: Path) -> None:
    server = serve()
    server.stop()
    (server.log_file.parent / "data").rename(tmp_path / "mq9-data")
    assert run_as_printed("docs/guides/backup.md", tmp_path, environment_in(tmp_path)) >= 2


def commands_of(page: Path) -> list[tuple[str, str]]:
    """Blocks that a reader types in: the language, and each line of it that is a command."""
    text = page.read_text("utf-8")
    found = re.findall(r"^ *```(\w*)\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)
    return [
        (language, line)
        for language, block in found
        if language in {"", "console", "sh", "bash", "text"} and A_COMMAND.search(block)
        for line in typed_in(block)
    ]


def typed_in(block: str) -> list[str]:
    """The commands of a block, without comments; one that goes on in the next line is one."""
    lines = re.sub(r"\\\n *", "", block).splitlines()
    if block.startswith("$ "):
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    commands = [re.sub(r"(?:^|\s+)#.*", "", line).strip() for line in lines]
    return [command for command in commands if command]


def test_every_line_of_a_block_counts() -> None:
    block = "mq9 a --b \\\n    --c  # why\n\n# nothing\n./scripts/d e\n"
    assert typed_in(block) == ["mq9 a --b --c", "./scripts/d e"]
    assert typed_in("$ mq9 serve\n[1] ready\n$ kill 1\n") == ["mq9 serve", "kill 1"]


def test_every_command_of_every_page_is_run_or_says_why_not() -> None:
    pages = [ROOT / "README.md", ROOT / "examples/README.md", *(ROOT / "docs").rglob("*.md")]
    assert len(pages) > 40
    missing: list[str] = []
    needless = set(NOT_RUN)
    for page in pages:
        name = str(page.relative_to(ROOT))
        for language, command in commands_of(page):
            if language == "console":
                assert name in SESSIONS or name in ELSEWHERE, name
                continue
            known = [
                each
                for each in NOT_RUN
                if command == each or (each[-1] == "*" and command.startswith(each[:-1]))
            ]
            needless -= set(known)
            missing += [] if known else [f"{name}: {command}"]
    assert missing == []
    assert needless == set()
    for page_name, runner in ELSEWHERE.items():
        assert Path(page_name).name in (ROOT / runner).read_text("utf-8"), page_name


def test_every_program_of_every_page_is_run() -> None:
    known: set[tuple[str, str]] = set()
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        name = str(page.relative_to(ROOT))
        text = page.read_text("utf-8")
        found = re.findall(r"^ *```(\w*)\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)
        for language, block in found:
            if language in OTHERS:
                continue
            saved = name in SESSIONS and re.match(r"# (\w+\.py)\n", block)
            if saved:
                assert f"python {saved[1]}" in text, f"{name} saves {saved[1]} and never starts it"
            else:
                known.add((name, language))
    assert known == PROGRAMS.keys()
    for (name, language), runners in PROGRAMS.items():
        for runner in runners:
            source = (ROOT / "tests" / runner).read_text("utf-8")
            assert Path(name).name in source, (name, runner)
            assert language in source, (name, runner)
