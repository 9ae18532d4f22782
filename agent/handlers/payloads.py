"""The check of a command's payload before its handler runs, and of the result after."""

from __future__ import annotations

import json
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from agent.core.values import JsonObject
from agent.errors import AgentError
from agent.handlers.base import Handler, HandlerRejected
from agent.plugins import describe, faults_of
from agent.wire.limits import BODY_BYTES

RESULT_BYTES: Final = BODY_BYTES - 8 * 1024
"""The longest result, as compact JSON text in UTF-8: with what goes around it, it fits into one request."""


def read_payload(handler: Handler, members: JsonObject) -> BaseModel:
    """The payload as the handler's model. Strict: ``"1"`` is no number.

    Runs code of the handler's package, its validators, which may take as long as it likes.

    Args:
        handler: whose ``Payload`` it is.
        members: the ``command_payload`` without the member that names the handler.

    Raises:
        HandlerRejected: ``invalid_payload``; the text names the member.
    """
    model = handler.Payload
    try:
        # JSON mode, since its strictness knows that a time or an enum travels as text.
        return model.model_validate_json(json.dumps(members), strict=True)
    except ValidationError as error:
        fault = faults_of(error, model)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a plug-in's own validator may raise anything
        fault = describe(error)
    raise HandlerRejected("invalid_payload", f"payload of {handler.name!r}: {fault}")


class ResultTooLarge(AgentError):
    """A result is longer than :data:`RESULT_BYTES`."""

    def __init__(self) -> None:
        super().__init__(f"its result is more than {RESULT_BYTES} bytes of JSON: return less of it")


def copy_result(result: object) -> Any:
    """The result as JSON brings it to the other side; the handler may go on changing its own.

    Raises:
        ResultTooLarge: it is; no more than the limit of its text is ever in memory, beside its longest string.
        TypeError, ValueError, RecursionError: it is no JSON.
    """
    text: list[str] = []
    left = RESULT_BYTES
    for part in json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).iterencode(result):
        # A lone surrogate is refused later, where results are sent, with its own sentence.
        left -= len(part.encode("utf-8", "surrogatepass"))
        if left < 0:
            raise ResultTooLarge
        text.append(part)
    return json.loads("".join(text))
