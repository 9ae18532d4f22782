"""Processes of this machine, as tests look at them."""

from __future__ import annotations

from pathlib import Path


def is_gone(process_id: int) -> bool:
    """Dead, or dead and not yet reaped by whoever inherited it."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text("utf-8").rpartition(")")[2].split()[0] in {"Z", "X"}
    except (FileNotFoundError, ProcessLookupError):
        return True
