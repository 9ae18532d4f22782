"""A handler that is ready to run: the check of its payload before, and of its result after."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ValidationError

from agent.core.commands import ATTEMPTS_MAX
from agent.core.values import Contract, JsonObject
from agent.errors import AgentError
from agent.plugins import describe, faults_of
from agent.wire.limits import BODY_BYTES

if TYPE_CHECKING:
    from agent.handlers.base import Handler


@dataclass(frozen=True, slots=True)
class InvalidPayload:
    """Why a payload is rejected before its handler runs.

    Attributes:
        code: ``missing_command_name``, ``unknown_command``, ``handler_unusable`` or ``invalid_payload``.
        message: a sentence that names the member or the handler.
    """

    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


@dataclass(frozen=True, slots=True)
class LoadedHandler:
    """A handler that is ready to run.

    Attributes:
        handler: the instance; its ``handle(payload, context)`` takes what :meth:`validate` returned.
        contract: what a crash in the middle means.
        timeout_s: after this many seconds ``context.stopping`` is set, by the configuration or the handler's own.
        lane: handlers with the same lane run one after the other.
        start_timeout_s, inactivity_timeout_s, max_attempts: as in :class:`~agent.handlers.base.Handler`.
    """

    name: str
    handler: Handler
    contract: Contract
    timeout_s: float
    lane: str
    start_timeout_s: float | None = None
    inactivity_timeout_s: float | None = None
    max_attempts: int = ATTEMPTS_MAX

    def validate(self, members: JsonObject) -> BaseModel | InvalidPayload:
        """The payload as the handler's model, or why it is none. Strict: ``"1"`` is no number.

        Runs code of the handler's package, its validators, which may take as long as it likes.

        Args:
            members: the ``command_payload`` without the member that names the handler.
        """
        model = self.handler.Payload
        try:
            # JSON mode, since its strictness knows that a time or an enum travels as text.
            return model.model_validate_json(json.dumps(members), strict=True)
        except ValidationError as error:
            return InvalidPayload("invalid_payload", f"payload of {self.name!r}: {faults_of(error, model)}")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plug-in's own validator may raise anything
            return InvalidPayload("invalid_payload", f"payload of {self.name!r}: {describe(error)}")


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
