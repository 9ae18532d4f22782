"""``/_emulator/labels`` and ``/_emulator/labels/decode``: labels made, and read out of pictures."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection
from typing_extensions import TypedDict

from agent.wire.base import JsonObject, Sent, Text
from simulator.console.labels.orders import LabelOrder, faults_of
from simulator.console.labels.work import LabelWork
from simulator.service.addresses import CONTROL_PREFIX
from simulator.service.answers import Answer, ok
from simulator.service.call import Call
from simulator.service.endpoints import ERROR, Endpoint, Parameter, Reply
from simulator.service.errors import TooLarge, invalid, invalid_all
from simulator.service.storage import products

if TYPE_CHECKING:
    from simulator.console.labels.making import LabelsResult

_TAG: Final = "control"
_LABELS: Final = f"{CONTROL_PREFIX}labels"
PICTURE_BYTES: Final = 25_000_000
"""Of a picture that is decoded."""
PICTURE_TYPES: Final = frozenset(
    b"image/" + kind
    for kind in (b"jpeg", b"png", b"webp", b"gif", b"bmp", b"tiff", b"heic", b"heif", b"avif", b"x-portable-graymap")
) | {b"application/octet-stream"}
_PATIENCE_S: Final = 8.0
"""After so long no further look at a picture begins."""
_DRAW_BYTES: Final = 2048
_QUICK: Final = Parameter(
    "quick",
    "`true`: one look, for the frames of a camera; else patient looks follow where nothing was read.",
    {"type": "boolean", "default": False},
)
_BUSY: Final = Reply(503, "`label_work_busy`: try again", ERROR)


class DrawnTextBody(Sent):
    """A text that is to be drawn as a QR code."""

    text: Text


class DecodedLabelRecord(TypedDict):
    """What a code says as a label."""

    product_id: str
    device_identifier: str
    profile: str
    host: str | None
    signed: bool


class DecodedProblemRecord(TypedDict):
    """Why a code is no label."""

    reason: str
    message: str


class DecodedCodeRecord(TypedDict):
    """A QR code of a picture; ``corners`` in its pixels, from the code's upper left."""

    text: str | None
    label: DecodedLabelRecord | None
    problem: DecodedProblemRecord | None
    size_bytes: int
    corners: list[list[int]]


class PictureRecord(TypedDict):
    """A picture as it was sent, upright."""

    format: str
    width: int
    height: int


class DecodedPictureRecord(TypedDict):
    """What the QR codes of a picture say; ``unread`` has the corners of those that were not read."""

    picture: PictureRecord
    codes: list[DecodedCodeRecord]
    unread: list[list[list[int]]]
    advice: str | None


def label_endpoints(work: LabelWork) -> tuple[Endpoint, ...]:
    """The control paths of labels.

    Args:
        work: the queues that it is done in; whoever calls this closes it with the service.
    """

    async def decode(call: Call) -> Answer:
        """Read the QR codes of the picture that is the body."""
        quick = _flag(call.query(frozenset({"quick"})), "quick")
        picture = await _picture(call)
        return ok(await work.pictures.do(partial(_decode, picture, quick=quick)))

    async def make(call: Call) -> Answer:
        """Make labels, proven to read."""
        order = await call.message(LabelOrder)
        if faults := faults_of(order):
            raise invalid_all(faults)

        def find(connection: Connection) -> str | None:
            return products.label_key(products.find_anywhere(connection, order.product_id))

        label_key = await call.service.look_up(find)
        made = await work.making.do(partial(_make, order.model_dump(), label_key))
        if not made.media_type:
            return ok(dict(made.shown))
        disposition = f'attachment; filename="{made.name}"'.encode()
        content_type = (b"content-type", made.media_type.encode())
        return Answer(200, made.data, ((b"content-disposition", disposition),), content_type)

    async def draw(call: Call) -> Answer:
        """Draw any text as a QR code."""
        text = (await call.message(DrawnTextBody)).text
        if len(text.encode()) > _DRAW_BYTES:
            raise invalid("text", f"has {len(text.encode()):,} bytes; give up to {_DRAW_BYTES:,}")
        svg = await work.making.do(partial(_draw, text))
        return Answer(200, svg, media_type=(b"content-type", b"image/svg+xml"))

    return (
        Endpoint(
            "POST",
            f"{_LABELS}/decode",
            decode,
            "decode_labels",
            "What the QR codes of a picture say; the body is the picture",
            _TAG,
            (
                Reply(200, "The codes, from the upper left of the picture on; none is no error", DecodedPictureRecord),
                Reply(400, "`not_a_picture`, `too_many_pixels` or `validation_error`", ERROR),
                Reply(413, f"`payload_too_large`: at most {PICTURE_BYTES} bytes", ERROR),
                Reply(415, "`unsupported_media_type`: the body must be a picture", ERROR),
                _BUSY,
            ),
            raw=tuple(sorted(kind.decode() for kind in PICTURE_TYPES)),
            parameters=(_QUICK,),
            public=True,
        ),
        Endpoint(
            "POST",
            _LABELS,
            make,
            "make_labels",
            "Labels of a product, each proven to read: a preview, a sheet, or a zip",
            _TAG,
            (
                Reply(200, "With `output: preview`: how many there are, and drawings of the first", JsonObject),
                Reply(200, "With `output: sheet`", None, media_type="application/pdf"),
                Reply(200, "With `output: zip`", None, media_type="application/zip"),
                Reply(400, "`validation_error` or `labels_not_made`", ERROR),
                Reply(404, "`product_not_found`", ERROR),
                _BUSY,
            ),
            body=(LabelOrder,),
            public=True,
        ),
        Endpoint(
            "POST",
            f"{CONTROL_PREFIX}qr-codes",
            draw,
            "draw_qr_code",
            "Any text as a QR code for a screen",
            _TAG,
            (
                Reply(200, "The code", None, media_type="image/svg+xml"),
                Reply(400, "`validation_error`", ERROR),
                _BUSY,
            ),
            body=(DrawnTextBody,),
            public=True,
        ),
    )


async def _picture(call: Call) -> bytes:
    try:
        return await call.read_body(PICTURE_TYPES, limit=PICTURE_BYTES, is_json=False)
    except TooLarge:
        limit = f"{PICTURE_BYTES // 1_000_000} MB"
        text = f"The picture has more than {limit}: send it as JPEG, scale it down, or cut it to the label."
        raise TooLarge("payload_too_large", text) from None


def _flag(query: dict[str, str], name: str) -> bool:
    value = query.get(name, "false")
    if value not in {"true", "false"}:
        raise invalid(name, "must be true or false")
    return value == "true"


# The libraries behind these take seconds to load: whoever makes no label does not wait for them.


def _decode(picture: bytes, *, quick: bool) -> dict[str, Any]:
    from simulator.console.labels.decoding import decode_picture

    return decode_picture(picture, quick=quick, patience_s=_PATIENCE_S)


def _make(order: Mapping[str, Any], label_key: str | None) -> LabelsResult:
    from simulator.console.labels.making import make_order

    return make_order(order, label_key)


def _draw(text: str) -> bytes:
    from simulator.console.labels.drawing import draw_text

    return draw_text(text)
