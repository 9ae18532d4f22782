"""``/_emulator/labels``: labels made for a product, and codes read out of a photograph."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field
from pydantic_core import from_json

from agent.errors import InvalidMessage, InvalidQr
from agent.wire.models import Sent, Text
from simulator.service.child_program import ChildProgram
from simulator.service.db import one
from simulator.service.errors import ApiError, conflict, invalid, not_found
from simulator.service.gate import CONTROL_PREFIX
from simulator.service.http import CallDep, Json, Router, answers
from simulator.service.service import Service
from simulator.wire.qr import LabelText
from simulator.wire.qr.keys import LabelSigner, signed_text, signer_of_label_key

LABELS: Final = f"{CONTROL_PREFIX}labels"
PICTURE_BYTES: Final = 25_000_000
LABELS_MAX: Final = 100


class MakeLabels(Sent):
    """Labels of a product, signed where the product's ``label_key`` is a secret that signs."""

    product_id: Text
    identifiers: Annotated[list[Text], Field(min_length=1, max_length=LABELS_MAX)]
    profile: Literal["json", "compact"] = "json"


class LabelShown(BaseModel):
    """A label: what its code says, and the code as SVG."""

    device_identifier: str
    text: str
    svg: str


class LabelList(BaseModel):
    """The labels, in the order of the identifiers."""

    data: list[LabelShown]


class CodesRead(BaseModel):
    """The text of each QR code of a picture, from the upper left on; none is no error."""

    codes: list[str]


async def _read_picture(reader: ChildProgram, picture: bytes) -> list[str]:
    """The codes. A hostile picture costs the reading program and nothing else.

    Raises:
        ApiError: 400: no picture, too large, or too much work; 503: too many wait already.
    """
    output = await reader.run(picture)
    if output is None:
        text = "This picture takes too much time or memory to read: scale it down, or cut it to the label."
        raise ApiError(400, "picture_refused", text)
    answer = json.loads(output)
    if "error" in answer:
        raise ApiError(400, answer["error"], answer["message"])
    return list(answer["codes"])


def make_router(service: Service) -> APIRouter:
    """The control paths of labels."""
    router = Router("control")
    reader = service.child_program("simulator.console.read_picture")

    @router.post(LABELS, response_model=LabelList, responses=answers(404, 409))
    async def make_labels(call: CallDep, body: MakeLabels) -> Response:
        """Make labels of a product."""
        row = one(call.db.sql, "SELECT definition FROM products WHERE id = ?", (body.product_id,))
        if row is None:
            raise not_found("product", body.product_id, "in this service")
        signer = _signer(from_json(row["definition"]).get("label_key"))
        return Json(await asyncio.to_thread(_make, body, signer))

    @router.post(f"{LABELS}/read", response_model=CodesRead, openapi_extra=_PICTURE)
    async def read_labels(call: CallDep) -> Response:
        """Read the QR codes of the picture that is the body (``application/octet-stream``)."""
        scope = call.request.scope
        scope["body_limit"], scope["body_types"] = PICTURE_BYTES, ("application/octet-stream",)
        return Json({"codes": await _read_picture(reader, await call.request.body())})

    return router


_PICTURE: Final = {"requestBody": {"required": True, "content": {"application/octet-stream": {}}}}


def _signer(label_key: str | None) -> LabelSigner | None:
    if label_key is None:
        return None
    try:
        signer = signer_of_label_key(label_key)
    except InvalidMessage as error:
        raise conflict("label_key_unreadable", f"The product's label_key cannot be read: {error}.") from None
    if signer is None:
        text = (
            "This product's label_key is a public key, so the service cannot sign: make its labels where the private "
            "key is, with 'fleet-simulator labels make'."
        )
        raise conflict("labels_not_signed", text)
    return signer


def _make(wanted: MakeLabels, signer: LabelSigner | None) -> LabelList:
    from simulator.labels.errors import LabelError  # with numpy, which a service without labels need not load
    from simulator.labels.symbol import svg_of

    made = []
    for number, identifier in enumerate(wanted.identifiers):
        try:
            text = signed_text(LabelText(wanted.product_id, identifier, profile=wanted.profile), signer)
            made.append(LabelShown(device_identifier=identifier, text=text, svg=svg_of(text, title=identifier)))
        except (InvalidQr, LabelError) as error:
            raise invalid(f"identifiers.{number}", str(error)) from None
    return LabelList(data=made)
