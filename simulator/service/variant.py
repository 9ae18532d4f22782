"""Variants: how the service answers an account as a server that was written with other choices would.

The specification leaves much open. :mod:`simulator.service.variant_answers` and the handlers carry the choices out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent.errors import ConfigurationError
from agent.wire.models import CommandStatus, list_faults
from simulator.service.errors import nearest

PAGE_SIZE_MAX: Final = 1_000


class ServerVariant(BaseModel):
    """How the service answers one account. Every choice has the service's own as its default."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    extensions: Annotated[
        bool,
        Field(
            description="Whether the server has anything beyond the specification. One without announces nothing "
            "(404), ignores parameters and members that it does not know, and sends no headers about the quota."
        ),
    ] = True
    list_shape: Annotated[
        Literal["data", "bare", "items", "results", "named"],
        Field(
            description="Where the items of a list are: data, items or results; bare: the body is the array; named: a "
            "member such as commands."
        ),
    ] = "data"
    paging: Annotated[
        Literal["complete", "none", "cursor", "next_url", "link_header", "page_number", "offset"],
        Field(
            description="How a list goes on: complete: next_cursor, has_more and Link; none: one page holds all; "
            "cursor: next_cursor alone; next_url: next in the body; link_header: Link alone; page_number: page and "
            "total_pages; offset: offset, limit and total. A bare array has Link instead of members."
        ),
    ] = "complete"
    page_size: Annotated[
        int,
        Field(ge=1, le=PAGE_SIZE_MAX, description="Items on a page where the request gives no limit; not with none."),
    ] = 100
    id_name: Annotated[
        Literal["id", "command_id", "_id", "uuid", "none"],
        Field(description="The member that holds a command's id."),
    ] = "id"
    id_type: Annotated[
        Literal["string", "integer"],
        Field(description="A command's id: a UUID, or a whole number in the order of sending."),
    ] = "string"
    status_words: Annotated[
        Literal["complete", "none", "own", "number"],
        Field(description="A command's status: the service's words, none, own words (PENDING, DONE), or 0 to 8."),
    ] = "complete"
    command_list: Annotated[
        Literal["everything", "open", "once"],
        Field(
            description="What GET /devices/{device_id}/commands lists without status: everything for ever, only what "
            "is open, or each command once: it is handed out then, with status=open too."
        ),
    ] = "everything"
    time_format: Annotated[
        Literal["rfc3339", "offset", "epoch_s", "epoch_ms", "naive"],
        Field(
            description="How times in answers are written: 2026-01-01T00:00:00.000Z; with +00:00; seconds or "
            "milliseconds since 1970; without a zone (UTC is meant)."
        ),
    ] = "rfc3339"
    results: Annotated[
        Literal["endpoint", "table", "none"],
        Field(
            description="Where results of commands go: the extension's endpoint and the table command_results; the "
            "table only; or nowhere: that table does not exist."
        ),
    ] = "endpoint"
    error_shape: Annotated[
        Literal["complete", "nested", "problem", "html", "empty"],
        Field(
            description="Body of an error: error and message; error as an object; application/problem+json; a page; "
            "nothing. All but the first are off the specification: proxies and frameworks answer so."
        ),
    ] = "complete"


STATUS_WORDS: Final[dict[str, str]] = {
    CommandStatus.QUEUED: "PENDING",
    CommandStatus.DELIVERED: "SENT",
    CommandStatus.IN_PROGRESS: "RUNNING",
    CommandStatus.SUCCEEDED: "DONE",
    CommandStatus.FAILED: "ERROR",
    CommandStatus.REJECTED: "REFUSED",
    CommandStatus.EXPIRED: "LAPSED",
    CommandStatus.TIMED_OUT: "LOST",
    CommandStatus.CANCELED: "WITHDRAWN",
}
"""The service's words -> those of a server with ``status_words: own``; its numbers follow this order."""
COMPLETE: Final = ServerVariant()
"""The service as its OpenAPI document describes it."""
PLAIN: Final = ServerVariant(extensions=False, paging="none", results="table")
"""The specification and nothing beyond it."""
VARIANTS: Final[dict[str, ServerVariant]] = {"complete": COMPLETE, "plain": PLAIN}
CHOICES: Final[tuple[str, ...]] = tuple(ServerVariant.model_fields)
BASE: Final = "base"
"""In a file or a body: the named variant that the other members are changes of."""


class VariantChange(ServerVariant):
    """Choices that differ from those of ``base``, or from what there is."""

    base: Annotated[
        Literal["complete", "plain"] | None,
        Field(description="The named variant that the other members are changes of."),
    ] = None

    def of(self, before: ServerVariant) -> ServerVariant:
        """The changed variant."""
        return change(before, self.model_dump(exclude_unset=True))


class VariantError(Exception):
    """What is wrong with a variant.

    Attributes:
        faults: (choice, issue) for each.
    """

    def __init__(self, faults: list[tuple[str, str]]) -> None:
        self.faults = faults
        super().__init__("; ".join(f"{name}: {issue}" for name, issue in faults))


def change(variant: ServerVariant, choices: Mapping[str, Any]) -> ServerVariant:
    """The variant with some choices changed; ``base`` replaces all of them first.

    Raises:
        VariantError: unknown choices or values, all at once.
    """
    wanted = dict(choices)
    base = wanted.pop(BASE, None)
    faults = []
    if base is not None and base not in VARIANTS:
        faults.append((BASE, f"must be one of: {', '.join(VARIANTS)}{nearest(str(base), VARIANTS)}"))
    unknown = [name for name in wanted if name not in CHOICES]
    faults += [
        (name, f"there is no such choice{nearest(name, CHOICES)}; there are {', '.join(CHOICES)}") for name in unknown
    ]
    known = {name: value for name, value in wanted.items() if name in CHOICES}
    try:
        changed = ServerVariant.model_validate({**VARIANTS.get(str(base), variant).model_dump(), **known})
    except ValidationError as exc:
        raise VariantError([*faults, *dict(list_faults(exc)).items()]) from None
    if faults:
        raise VariantError(faults)
    return changed


def read_variant(texts: Sequence[str]) -> ServerVariant:
    """What several ``--variant`` options give together: the later one changes what the earlier ones said.

    Each is a name, a file of ``choice: value`` lines, or ``choice=value,...``.

    Raises:
        ConfigurationError: naming the text, the choice and its values.
    """
    variant, faults = COMPLETE, []
    for text in texts:
        try:
            variant = change(variant, _choices_of(text))
        except VariantError as exc:
            faults += [f"--variant {text}: {name}: {issue}" for name, issue in exc.faults]
    if faults:
        raise ConfigurationError(faults, "service")
    return variant


def _choices_of(text: str) -> Mapping[str, Any]:
    if Path(text).suffix in {".yaml", ".yml", ".json"}:
        return _choices_in_file(Path(text))
    if "=" not in text:
        return {BASE: text}
    choices: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = (one.strip() for one in part.partition("="))
        if not equals:
            issue = (
                "must be choice=value; commas separate them, and a named variant goes before in an option of its own"
            )
            raise VariantError([(name or "(empty)", issue)])
        choices[name] = value
    return choices


def _choices_in_file(path: Path) -> Mapping[str, Any]:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise VariantError([(str(path), f"cannot be read: {exc.strerror}")]) from None
    except (UnicodeDecodeError, yaml.YAMLError):
        found = None
    if not isinstance(found, dict):
        raise VariantError([(str(path), "must be YAML with choice: value on each line")])
    return found


def name_of(variant: ServerVariant) -> str:
    """The variant's name, or how it differs from the service itself: ``id_name=_id,list_shape=bare``."""
    for name, known in VARIANTS.items():
        if variant == known:
            return name
    differing = (name for name in CHOICES if getattr(variant, name) != getattr(COMPLETE, name))
    return ",".join(f"{name}={getattr(variant, name)}" for name in differing)
