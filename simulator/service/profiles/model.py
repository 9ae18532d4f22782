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

Discovery = Literal["present", "404_json", "404_html", "200_html"]
AbsentExtensions = Literal["ignored", "refused", "not_found"]
Unknown = Literal["refused", "ignored"]
ListShape = Literal["data", "bare", "items", "results", "named", "success_data", "data_items", "hal"]
Paging = Literal[
    "complete", "none", "cursor", "next_url", "links_next", "link_header", "page_number", "page_header", "offset"
]
IdName = Literal["id", "command_id", "_id", "uuid", "meta.uuid", "none"]
IdType = Literal["string", "integer"]
StatusWords = Literal["complete", "none", "own", "number"]
CommandList = Literal["everything", "open", "once"]
CommandOrder = Literal["complete", "newest", "oldest"]
Presence = Literal["present", "absent"]
TimeFormat = Literal[
    "rfc3339", "offset", "short_offset", "utc_word", "minutes", "rfc1123", "epoch_s", "epoch_ms", "epoch_us", "naive"
]
Results = Literal[
    "endpoint",
    "table",
    "404_json",
    "404_html",
    "404_text",
    "405_json",
    "405_html",
    "405_text",
    "403_json",
    "403_html",
    "403_text",
    "500_json",
    "500_html",
    "500_text",
]
WriteStatus = Literal["complete", "200", "201", "202", "204"]
WriteBody = Literal["record", "success", "success_data", "empty_object", "empty", "text_ok", "text_created", "html"]
Registration = Literal["record", "success_device", "empty"]
ErrorShape = Literal["complete", "nested", "message", "problem", "html", "text", "empty"]
WrongKeys = Literal["401", "403"]
RetryAfter = Literal["seconds", "date", "none", "huge", "negative", "text"]
UnknownPath = Literal["complete", "html", "text"]
Connection = Literal["keep_alive", "close", "until_close"]
Encoding = Literal["identity", "gzip"]
Framing = Literal["content_length", "chunked"]
ContentType = Literal["json", "json_charset", "vendor_json", "text", "none"]

HOUR_S: Final = 3_600
OFFSET_MAX_S: Final = 10 * 366 * 86_400
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

    discovery: Discovery = _axis(
        "present", "What GET /.well-known/device-service answers; the page and the 404s say nothing about extensions."
    )
    extensions: tuple[ExtensionName, ...] = _axis(
        EXTENSIONS,
        "The extensions that the server has, and announces where discovery is present.",
        samples=((), ("command-results",), ("command-status", "long-poll", "recorded-at")),
    )
    absent_extensions: AbsentExtensions = _axis(
        "ignored",
        "What becomes of a parameter, member or header of an extension that the server does not have: without effect, "
        "400, or 404. An endpoint of such an extension is 405 where it is refused, else 404.",
    )
    unknown_parameter: Unknown = _axis("refused", "Query parameters that no path has: 400, or without effect.")
    unknown_member: Unknown = _axis("refused", "Body members that nothing names: 400, or without effect.")
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
    command_order: CommandOrder = _axis(
        "complete",
        "Order of that list where the request gives none: complete: newest first, with status=open oldest first.",
    )
    created_at: Presence = _axis("present", "Whether a command says when it was sent.")
    expires_at: Presence = _axis("present", "Whether a command says when it expires.")
    time_format: TimeFormat = _axis(
        "rfc3339",
        "How times in answers are written: 2026-01-01T00:00:00.000Z; +00:00; +00; 2026-01-01 00:00:00 UTC; without "
        "seconds (2026-01-01T00:00Z); Thu, 01 Jan 2026 00:00:00 GMT; seconds, milliseconds, microseconds since 1970; "
        "without a zone (UTC is meant).",
    )
    results: Results = _axis(
        "endpoint",
        "Where results of commands go: the extension's endpoint and the table command_results; the table only; or "
        "nowhere: then writing to and reading from that table answers this status with JSON, HTML or text.",
    )
    write_status: WriteStatus = _axis(
        "complete",
        "Status of a successful write, except where the specification promises a body and this would be 204.",
    )
    write_body: WriteBody = _axis(
        "record",
        'Body of a successful write: the record; {"success": true}; the same with data; {}; nothing; OK or Created as '
        "text; a page. Where the specification promises the record (a new product, a new schema, a scanned QR code, a "
        "sign-in) it is always the record.",
    )
    registration: Registration = _axis(
        "record", "Body of a successful registration: the device, success and device, or nothing."
    )
    error_shape: ErrorShape = _axis(
        "complete",
        "Body of an error: error and message; error as an object; message alone; application/problem+json; a page; "
        "text; nothing. All but the first are off the specification: proxies and frameworks answer so.",
    )
    wrong_keys: WrongKeys = _axis(
        "401", "Status of a wrong key pair; 403 is off the specification. A missing key header is always 401."
    )
    retry_after: RetryAfter = _axis(
        "seconds", "Retry-After of a 429: seconds, an HTTP date, no header, 1000000000, -1, or the word soon."
    )
    quota_headers: Presence = _axis("present", "Whether answers have RateLimit and X-RateLimit headers.")
    unknown_path: UnknownPath = _axis("complete", "Body of the 404 of a path that does not exist: JSON, a page, text.")
    date: Presence = _axis("present", "Whether answers have a Date header.")
    date_offset_s: Annotated[int, Field(ge=-OFFSET_MAX_S, le=OFFSET_MAX_S)] = _axis(
        0, "By how many seconds the Date header is ahead; below 0 it is behind.", samples=(-HOUR_S, 86_400)
    )
    connection: Connection = _axis(
        "keep_alive",
        "What follows an answer: further requests, or its end: with Content-Length, or with the end of the connection "
        "as the end of the body, as HTTP/1.0 has it.",
    )
    encoding: Encoding = _axis("identity", "Whether every body is compressed, whatever the request accepts.")
    framing: Framing = _axis("content_length", "Whether the length stands in the head, or the body comes in chunks.")
    content_type: ContentType = _axis(
        "json",
        "Content-Type of JSON: application/json, with charset=utf-8, application/vnd.device-service.v1+json, "
        "text/plain, or no header.",
    )
    byte_order_mark: Presence = _axis("absent", "Whether a JSON body begins with a byte order mark.")

    def has(self, extension: str) -> bool:
        """Whether the server has this extension; one without the endpoint of results has no ``command-results``."""
        return extension in self.extensions and (extension != "command-results" or self.results == "endpoint")


COMPLETE: Final = ServerProfile()
"""The service as its OpenAPI document describes it."""
PLAIN: Final = ServerProfile(
    discovery="404_json",
    extensions=(),
    unknown_parameter="ignored",
    unknown_member="ignored",
    paging="none",
    results="table",
    quota_headers="absent",
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
