"""Runs a broker whose interpreter sleeps when told: `sleeper.py FOLDER python -m mq9 ...`.

When `FOLDER/sleep` appears, the interpreter's lock is held for as many seconds as it says;
`FOLDER/asleep` and `FOLDER/awake` tell when. Nothing in mq9 takes part in it.
"""

import ctypes
import sys
import threading
import time
from pathlib import Path

from mq9.cli import main


def sleep_when_told(folder: Path) -> None:
    """Hold the lock once."""
    while not (told := folder / "sleep").exists():
        time.sleep(0.005)
    usleep = ctypes.PyDLL(None).usleep
    microseconds = int(float(told.read_text()) * 1_000_000)
    (folder / "asleep").write_text(str(time.monotonic()))
    # A function of a PyDLL is called with the lock held: no Python code runs meanwhile.
    usleep(microseconds)
    (folder / "awake").write_text(str(time.monotonic()))


if __name__ == "__main__":
    threading.Thread(target=sleep_when_told, args=(Path(sys.argv[1]),), daemon=True).start()
    sys.exit(main(sys.argv[5:]))
