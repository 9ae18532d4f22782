"""Connections whose refusals are noted too."""

from __future__ import annotations

from typing import Any

from simulator.service.corked import CorkedProtocol
from simulator.service.request_log.recorder import Recorder
from simulator.service.request_log.recording import REFUSAL


class RecordedProtocol(CorkedProtocol):
    """A connection whose requests are recorded.

    Args:
        recorder: what notes requests, also those that the connection refuses; None for nothing.
    """

    def __init__(self, *args: object, recorder: Recorder | None = None, **options: Any) -> None:
        self._recorder = recorder
        super().__init__(*args, **options)

    def refused(self, status: int, scope: Any = None) -> None:
        """An answer is sent without the application."""
        if scope is not None:
            scope[REFUSAL] = status
        elif self._recorder is not None:
            self._recorder.note_refusal(status, self.client)
