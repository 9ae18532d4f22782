"""A mark that the broker lacks the newest tokens; ``device-gateway-broker.path`` waits for it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from gateway.devices.new_file import create_empty

FILE_NAME: Final = "broker-wanted"


def want_broker_update(state_dir: Path) -> None:
    """Set the mark, after a change of the tokens.

    Raises:
        OSError: it cannot be written.
    """
    create_empty(state_dir / FILE_NAME)


def take_broker_mark(state_dir: Path) -> None:
    """Take the mark away, before the tokens are read: a change after that sets it again.

    Raises:
        OSError: it cannot be removed.
    """
    (state_dir / FILE_NAME).unlink(missing_ok=True)
