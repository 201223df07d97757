"""An orchestrator in TypeScript and a worker in Go, which know mq9 only as subjects of NATS.

`python examples/typescript_and_go/main.py` gets the NATS clients of both, starts a broker of its
own unless MQ9_URL says where one is, and runs both programs. Needs Node 20 or newer and Go 1.24.
"""

import os
import secrets
import shutil
import subprocess
from pathlib import Path

from mq9.testing import Broker

HERE = Path(__file__).parent


def build() -> None:
    """The clients from npm, and the worker."""
    if not (HERE / "node_modules").exists():
        npm = ["npm", "ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]
        subprocess.run(npm, cwd=HERE, check=True)
    # Not optimised, which is compiled sooner.
    flags = ["-trimpath", "-buildvcs=false", "-gcflags=all=-N -l"]
    subprocess.run(["go", "build", *flags, "-o", "worker", "."], cwd=HERE, check=True)


def run(url: str) -> None:
    """Both programs, until the orchestrator has all answers."""
    # A mailbox of this run: in one of another run, its last message would stop the worker.
    jobs = f"words.{secrets.token_hex(8)}"
    environment = {**os.environ, "MQ9_URL": url, "JOBS": jobs}
    ask = [str(HERE / "node_modules/.bin/tsx"), "ask.ts"]
    with subprocess.Popen([str(HERE / "worker")], env=environment) as worker:
        try:
            subprocess.run(ask, cwd=HERE, env=environment, check=True, timeout=60)
            worker.wait(timeout=60)
        finally:
            worker.kill()


def main() -> None:
    """Build, then run."""
    for tool in ("npm", "go"):
        if shutil.which(tool) is None:
            raise SystemExit(f"this example needs {tool}")
    build()
    if url := os.environ.get("MQ9_URL"):
        run(url)
    else:
        with Broker() as broker:
            run(broker.url)


if __name__ == "__main__":
    main()
