"""A broker that ends with the program that started it, also when that is killed.

Run as `python -m mq9.testing.broker_process FLAGS`: `mq9 serve` with these flags, until the
standard input ends. There is no management page unless the configuration asks for it.
"""

import os
import signal
import sys
import threading

from mq9.cli.serve import serve


def _end_with_the_input() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_input, daemon=True).start()
    sys.exit(serve(sys.argv[1:], management=False))
