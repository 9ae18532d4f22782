"""The model of a profile: one axis for each choice that the specification leaves open."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

ExtensionName = Literal[
    "batch-sensor-data",
    "command-events",
    "command-results",
    "command-status",
    "command-ttl",
    "idempotency-key",
    "list-parameters",
    "long-poll",
    "recorded-at",
    "rule-firings",
    "rule-management",
    "single-records",
]
EXTENSIONS: Final[tuple[ExtensionName, ...]] = get_args(ExtensionName)

ListShape = Literal["data", "bare", "items", "results", "named", "success_data", "data_items", "hal"]
Paging = Literal[
    "complete", "none", "cursor", "next_url", "links_next", "link_header", "page_number", "page_header", "offset"
]
IdName = Literal["id", "command_id", "_id", "uuid", "meta.uuid", "none"]
IdType = Literal["string", "integer"]
StatusWords = Literal["complete", "none", "own", "number"]
CommandList = Literal["everything", "open", "once"]
TimeFormat = Literal[
    "rfc3339", "offset", "short_offset", "utc_word", "minutes", "rfc1123", "epoch_s", "epoch_ms", "epoch_us", "naive"
]
Results = Literal["endpoint", "table", "none"]
ErrorShape = Literal["complete", "nested", "message", "problem", "html", "text", "empty"]

PAGE_SIZE_MAX: Final = 1_000


def _axis(default: Any, description: str, *, samples: tuple[Any, ...] = ()) -> Any:
    """A field with what it means; ``samples`` are the values that tests take where there is no list of all."""
    extra: dict[str, Any] | None = (
        {"x-samples": [list(one) if isinstance(one, tuple) else one for one in samples]} if samples else None
    )
    return Field(default, description=description, json_schema_extra=extra)


class ServerProfile(BaseModel):
    """How the service answers one account. Every axis has the complete service's choice as its default."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    extensions: tuple[ExtensionName, ...] = _axis(
        EXTENSIONS,
        "The extensions that the server has and announces. One without any announces nothing (404), ignores parameters "
        "and members that it does not know, and sends no headers about the quota.",
        samples=((), ("command-results",), ("command-status", "long-poll", "recorded-at")),
    )
    list_shape: ListShape = _axis(
        "data",
        "Where the items of a list are: data, items or results; bare: the body is the array; named: a member such as "
        "commands; success_data: success and data; data_items: data.items; hal: _embedded.",
    )
    paging: Paging = _axis(
        "complete",
        "How a list goes on: complete: next_cursor, has_more and Link; none: one page holds all; cursor: next_cursor "
        "alone; next_url: next in the body; links_next: links.next (_links.next.href in hal); link_header: Link alone; "
        "page_number: page and total_pages; page_header: X-Page and X-Total-Pages; offset: offset, limit and total. A "
        "bare array has Link instead of members.",
    )
    page_size: Annotated[int, Field(ge=1, le=PAGE_SIZE_MAX)] = _axis(
        100, "Items on one page, where the request gives no limit and paging is not none.", samples=(1, 5)
    )
    id_name: IdName = _axis("id", "The member that holds a command's id; meta.uuid lies one level deeper.")
    id_type: IdType = _axis("string", "A command's id: a UUID, or a whole number in the order of sending.")
    status_words: StatusWords = _axis(
        "complete",
        "A command's status: the complete service's words, none, own words (PENDING, DONE), or 0 to 8.",
    )
    command_list: CommandList = _axis(
        "everything",
        "What GET /devices/{device_id}/commands lists without status: everything for ever, only what is open, or each "
        "command once: it is handed out then, with status=open too.",
    )
    time_format: TimeFormat = _axis(
        "rfc3339",
        "How times in answers are written: 2026-01-01T00:00:00.000Z; +00:00; +00; 2026-01-01 00:00:00 UTC; without "
        "seconds (2026-01-01T00:00Z); Thu, 01 Jan 2026 00:00:00 GMT; seconds, milliseconds, microseconds since 1970; "
        "without a zone (UTC is meant).",
    )
    results: Results = _axis(
        "endpoint",
        "Where results of commands go: the extension's endpoint and the table command_results; the table only; or "
        "nowhere: that table does not exist.",
    )
    error_shape: ErrorShape = _axis(
        "complete",
        "Body of an error: error and message; error as an object; message alone; application/problem+json; a page; "
        "text; nothing. All but the first are off the specification: proxies and frameworks answer so.",
    )

    @property
    def is_plain(self) -> bool:
        """Whether the server has the specification and nothing beyond it."""
        return not self.extensions

    def has(self, extension: str) -> bool:
        """Whether the server has this extension; one without the endpoint of results has no ``command-results``."""
        return extension in self.extensions and (extension != "command-results" or self.results == "endpoint")


COMPLETE: Final = ServerProfile()
"""The service as its OpenAPI document describes it."""
PLAIN: Final = ServerProfile(
    extensions=(),
    paging="none",
    results="table",
)
"""The specification and nothing beyond it."""
PROFILES: Final[dict[str, ServerProfile]] = {"complete": COMPLETE, "plain": PLAIN}

AXES: Final[tuple[str, ...]] = tuple(ServerProfile.model_fields)


def values_of(axis: str) -> tuple[Any, ...]:
    """Every value of an axis; of a number or a list of names, some that differ from the default."""
    field = ServerProfile.model_fields[axis]
    if isinstance(field.json_schema_extra, dict) and "x-samples" in field.json_schema_extra:
        samples: Any = field.json_schema_extra["x-samples"]
        return (field.default, *(tuple(one) if isinstance(one, list) else one for one in samples))
    return get_args(field.annotation)
