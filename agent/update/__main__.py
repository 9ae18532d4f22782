"""``python -m agent.update``."""

from __future__ import annotations

import sys

from agent.update.install import main

if __name__ == "__main__":
    sys.exit(main())
