"""`python -m mq9` is the `mq9` command."""

import sys

from mq9.cli import main

sys.exit(main())
