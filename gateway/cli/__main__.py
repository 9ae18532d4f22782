"""``python -m gateway.cli``: the program where no script is installed."""

from __future__ import annotations

from gateway.cli import main

main()
