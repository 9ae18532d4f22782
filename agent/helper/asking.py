"""The agent's side of the exchange: write a request, wait for the answer, withdraw a request that was not taken."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from typing import Final

from agent.helper.exchange import ACCEPTED, ANSWER, REQUEST, HelperAnswer, HelperRequest, now_s, read_answer, write_file

_LOOK_EVERY_S: Final = 0.1
# The helper has the request: its answer is a few instructions away.
_TAKEN_S: Final = 2.0


_MAX_ID_CHARACTERS: Final = 128


def request_id_of(command_id: str) -> str:
    """The command's own id where it can stand in a log, since that is what one looks for there."""
    is_plain = len(command_id) <= _MAX_ID_CHARACTERS and command_id.isascii() and command_id.isprintable()
    if is_plain:
        return command_id
    return hashlib.sha256(command_id.encode()).hexdigest()


class NoHelper(Exception):
    """The helper did not take the request, and it is withdrawn: nothing was done or will be. The text says why."""


class HelperCall:
    """One request of the agent to its helper.

    Args:
        request_id: short and printable.
        action: what is asked.
        stopping: ends each wait early.
        request_file, answer_file: by default where the helper looks and writes.
    """

    def __init__(
        self,
        request_id: str,
        action: str,
        stopping: threading.Event,
        *,
        request_file: Path | None = None,
        answer_file: Path | None = None,
    ) -> None:
        self._id = request_id
        self._action = action
        self._stopping = stopping
        self._request_file = request_file or REQUEST
        self._answer_file = answer_file or ANSWER

    def answer(self) -> HelperAnswer | None:
        """What the helper has said to this request in this boot; None while it has said nothing."""
        return read_answer(self._answer_file, self._id)

    def ask(self, timeout_s: float) -> HelperAnswer | None:
        """Ask and wait for the answer; None when the helper took the request and says nothing.

        Args:
            timeout_s: how long the helper may take to answer, seconds.

        Raises:
            NoHelper: it was not taken.
        """
        try:
            write_file(self._request_file, HelperRequest(self._id, self._action, now_s()), 0o600)
        except OSError as error:
            where = f"{self._request_file}: {error.strerror}"
            raise NoHelper(
                f"the request cannot be written to {where}; run the agent by device-agent.service"
            ) from error
        answer = self._wait_for_answer(timeout_s, self._stopping)
        if answer is not None:
            return answer
        try:
            self._request_file.unlink()
        except FileNotFoundError:
            return self._wait_for_answer(_TAKEN_S, threading.Event())
        if self._stopping.is_set():
            raise NoHelper("the agent stopped before the helper took the request")
        raise NoHelper(
            f"nobody took the request within {timeout_s:g} s: systemctl enable --now device-agent-helper.path"
        )

    def wait_for_end(self, timeout_s: float) -> HelperAnswer | None:
        """After :data:`ACCEPTED`: wait until the agent is asked to stop.

        Returns:
            None when it is; the answer as it is now when the action failed, or the wait is over.
        """
        answer = self.answer()
        for _ in range(_looks(timeout_s)):
            if answer is not None and answer.state != ACCEPTED:
                return answer
            if self._stopping.wait(_LOOK_EVERY_S):
                return None
            answer = self.answer()
        return answer or HelperAnswer(self._id, ACCEPTED)

    def _wait_for_answer(self, timeout_s: float, stopping: threading.Event) -> HelperAnswer | None:
        answer = self.answer()
        for _ in range(_looks(timeout_s)):
            if answer is not None or stopping.wait(_LOOK_EVERY_S):
                break
            answer = self.answer()
        return answer


def _looks(timeout_s: float) -> int:
    return max(1, round(timeout_s / _LOOK_EVERY_S))
