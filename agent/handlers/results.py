"""How large a handler's result may be, found out before a copy of it is made."""

from __future__ import annotations

import json
from typing import Any, Final

from agent.errors import AgentError
from agent.wire.limits import BODY_BYTES

RESULT_BYTES: Final = BODY_BYTES - 8 * 1024
"""The longest result, as compact JSON text in UTF-8: with what goes around it, it fits into one request."""


class ResultTooLarge(AgentError):
    """A result is longer than :data:`RESULT_BYTES`."""

    def __init__(self) -> None:
        super().__init__(f"its result is more than {RESULT_BYTES} bytes of JSON: return less of it")


def copy_result(result: object) -> Any:
    """The result as JSON brings it to the other side; the handler may go on changing its own.

    Raises:
        ResultTooLarge: however large it is, this takes memory for :data:`RESULT_BYTES` of it at most, times a few.
        TypeError, ValueError, RecursionError: it is no JSON.
    """
    if _least_bytes(result, RESULT_BYTES) > RESULT_BYTES:
        raise ResultTooLarge
    text = json.dumps(result, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # A lone surrogate is refused later, where results are sent, with its own sentence.
    if len(text.encode("utf-8", "surrogatepass")) > RESULT_BYTES:
        raise ResultTooLarge
    return json.loads(text)


def _least_bytes(value: object, most: int) -> int:
    """How long its JSON text is at least; the count ends soon after ``most``.

    Raises:
        RecursionError: it is nested too deeply, or holds itself.
    """
    if isinstance(value, str):
        return len(value) + 2
    if not isinstance(value, dict | list | tuple):
        return 1
    so_far = 1 if value else 2
    for item in value:
        so_far += 1 + _least_bytes(item, most - so_far)
        if isinstance(value, dict) and so_far <= most:
            so_far += 1 + _least_bytes(value[item], most - so_far)
        if so_far > most + 1:
            break
    return so_far
