"""`python -m zos_agent_mq` is the `zos-mq` command."""

import sys

from mq9.local.command import main

sys.exit(main())
