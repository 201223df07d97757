"""Runs a broker whose interpreter is troubled: `bystander_broker.py FOLDER OBJECTS serve ...`.

For as long as there is a file `FOLDER/trouble`, there is trouble each second. If the file says
`collect`, all garbage is collected, with so many OBJECTS to look at. If it says `block`, the
interpreter is blocked for 100 ms. `FOLDER/troubled` gets a line with the seconds that each took.
Nothing in mq9 takes part in it.
"""

import ctypes
import gc
import sys
import threading
import time
from pathlib import Path

from mq9.cli import main

PAUSE_S, LOOK_S, BLOCK_S = 1.0, 0.02, 0.1


def trouble(folder: Path, objects: int) -> None:
    """Once a second, while it is wanted."""
    # A function of a PyDLL is called with the lock held: no Python code runs meanwhile.
    usleep = ctypes.PyDLL(None).usleep
    heap: list[list[int]] = []
    due = time.monotonic()
    while True:
        time.sleep(LOOK_S)
        try:
            wanted = (folder / "trouble").read_text("utf-8")
        except FileNotFoundError:
            due = time.monotonic()
            continue
        if wanted == "collect" and not heap:
            # Not at the start: what is there by then is never looked at again.
            heap = [[number] for number in range(objects)]
        if time.monotonic() < due:
            continue
        due += PAUSE_S
        started = time.monotonic()
        if wanted == "collect":
            gc.collect()
        else:
            usleep(int(BLOCK_S * 1e6))
        with (folder / "troubled").open("a", encoding="utf-8") as told:
            told.write(f"{time.monotonic() - started:.6f}\n")


if __name__ == "__main__":
    arguments = Path(sys.argv[1]), int(sys.argv[2])
    threading.Thread(target=trouble, args=arguments, daemon=True).start()
    sys.exit(main(sys.argv[3:]))
