"""``python -m agent.cli``: the program where no script is installed."""

from __future__ import annotations

from agent.cli import main

main()
