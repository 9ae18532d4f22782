"""Answers as an engine hands them over."""

from __future__ import annotations

from collections.abc import Mapping

from simulator.fleet.engine.ports import HttpAnswer


def answer_of(status: int, headers: Mapping[str, str], body: bytes) -> HttpAnswer:
    """An answer with these headers."""
    return HttpAnswer(status, [(name.encode(), value.encode()) for name, value in headers.items()], body)
