"""The error body (specification, "Error body" and "Errors")."""

from __future__ import annotations

from typing import Any

from pydantic import model_validator

from agent.wire.base import Received


class ErrorDetail(Received):
    """What is wrong with one member of a request body."""

    field: str = ""
    issue: str = ""


class ErrorBody(Received):
    """``error`` is a short text and always there by the specification; here it may be missing.

    Attributes:
        details: on 400 ``validation_error``: one per faulty member.
        error_description: on the OAuth endpoints.
    """

    error: str = ""
    message: str = ""
    error_description: str = ""
    details: tuple[ErrorDetail, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _take_other_shapes(cls, data: Any) -> Any:
        """Other servers nest (``{"error": {"code", "message"}}``) or say ``detail``: their sentence is kept."""
        if not isinstance(data, dict):
            return data
        members = {name: data[name] for name in ("error", "message", "error_description") if _is_text(data.get(name))}
        nested = data.get("error")
        if isinstance(nested, dict):
            members.update({to: nested[of] for of, to in _NESTED if _is_text(nested.get(of))})
        if "message" not in members and _is_text(data.get("detail")):
            members["message"] = data["detail"]
        details = data.get("details")
        if isinstance(details, list):
            members["details"] = [detail for detail in details if isinstance(detail, dict)]
        return members


_NESTED = (("code", "error"), ("type", "error"), ("message", "message"))


def _is_text(value: object) -> bool:
    return isinstance(value, str)
