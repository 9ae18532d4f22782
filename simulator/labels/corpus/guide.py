"""The corpus's README, and the JSON Schema of ``corpus.json``."""

from __future__ import annotations

from typing import Any, Final

README: Final = """\
# Label corpus

Payloads for `POST /onboarding/scan-qr` that a server must refuse, and some that it must take. `corpus.json` says of
each what is wrong with it and what the service of the specification answers; `corpus.schema.json` is its JSON Schema.

1. Have two products on the server: `made_for.product_id` without a `label_key`, `made_for.signed_product_id` with
   `made_for.label_key`. (A key that was made for this corpus can be made again by anybody: never use it elsewhere.)
2. For each entry, send `{"qr_data": <qr_data>}` or, where `body_base64` is set, those bytes as the whole body.
3. Compare the status and the body's `error` with `expected`. Where `shows` is set, the answer must name that product
   and identifier. Where `expected` is null, no scanner may hand the text over: nothing is sent.

Point a scanner at `pictures/`: with `decoders_find` a reader of QR codes gets exactly the bytes of `payload_base64`;
where it is false it gets none, and where it is null (Micro QR, rMQR) that depends on the reader. `texts/` has the same
bytes as files.

`fleet-simulator labels corpus --against URL` does steps 1 to 3.
"""

_TEXT: Final = {"type": "string"}
_TEXT_OR_NULL: Final = {"type": ["string", "null"]}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


_ENTRY: Final = _object(
    {
        "id": {"type": "string", "pattern": "^[a-z0-9_]+-[0-9]{3}$"},
        "class": _TEXT,
        "valid": {"type": "boolean", "description": "a server must take it"},
        "what": {"type": "string", "description": "what is wrong with it, or special"},
        "payload_base64": {"type": "string", "contentEncoding": "base64", "description": "the bytes in the code"},
        "qr_data": {**_TEXT_OR_NULL, "description": "the text to send: the bytes as UTF-8, else as ISO 8859-1"},
        "body_base64": {**_TEXT_OR_NULL, "description": "the whole body to send, where no text can say it"},
        "symbology": {"type": "string", "description": "in the words of zxing-cpp; QRCode for most"},
        "text": {"type": "string", "description": "file with the bytes"},
        "picture": {**_TEXT_OR_NULL, "description": "file with the symbol; null where none holds it"},
        "decoders_find": {
            "type": ["boolean", "null"],
            "description": "a reader of QR codes gets the bytes from the picture; null: some do",
        },
        "expected": _or_null(_object({"status": {"type": "integer"}, "error": _TEXT_OR_NULL})),
        "shows": _or_null(_object({"product_id": _TEXT, "device_identifier": _TEXT})),
    }
)

SCHEMA: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Label corpus",
    **_object(
        {
            "format": {"const": "device-agent/label-corpus/1"},
            "seed": {"type": "integer"},
            "made_for": _object(
                {"product_id": _TEXT, "signed_product_id": _TEXT, "label_key": _TEXT, "link_host": _TEXT}
            ),
            "request": _object({"method": _TEXT, "path": _TEXT, "content_type": _TEXT}),
            "classes": {
                "type": "object",
                "additionalProperties": _object({"about": _TEXT, "valid": {"type": "boolean"}}),
            },
            "entries": {"type": "array", "items": _ENTRY},
        }
    ),
}
