"""Payloads that a server must refuse, and neighbours that it must take: ``corpus.json``, for one product of a tester.

The file beside this module is data. Each entry says how its payload is made, what is wrong with it, and which answer
our service gives to ``POST /onboarding/scan-qr``:

=========================== =========================================================================================
``text``                    the payload, with the placeholders of :func:`_placeholders`; ``<fill>`` grows to ``bytes``
``encoding``                of the text; UTF-8 if not given
``label``                   instead: a label in the profile ``profile``, whose signature is ``sig`` of :func:`_sign`
``body``                    instead: the request's body as it is, in ISO 8859-1
``status``, ``error``       of our service's answer
``shows``                   of a good label: product and identifier that the answer must not contradict
=========================== =========================================================================================
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from simulator.labels.errors import LabelError
from simulator.labels.reading import read_drawing
from simulator.labels.symbol import png_of
from simulator.whole_files import cannot_write, write_whole
from simulator.wire.base64url import from_base64url, to_base64url
from simulator.wire.qr import LabelText, encode_label
from simulator.wire.qr.keys import ED25519, LabelSigner, signed_text
from simulator.wire.qr.label import COMPACT, JSON, LINK

IDENTIFIER: Final = "SIM-000001"
UNKNOWN_PRODUCT: Final = "1c2d94aa-d7ca-4fe4-ad84-fee5cc59779d"
CORPUS_JSON: Final = "corpus.json"
_DOTS: Final = 4


@dataclass(frozen=True, slots=True)
class Setting:
    """What the payloads are made for.

    Attributes:
        product_id: a product without ``label_key``.
        signed_product_id: one whose ``label_key`` is that of ``signer``.
        signer: its key.
        host: of links.
    """

    product_id: str
    signed_product_id: str
    signer: LabelSigner
    host: str = "onboard.example.com"

    def label(self, profile: str, identifier: str = IDENTIFIER) -> LabelText:
        """A label of the signed product, without its signature."""
        host = self.host if profile == LINK else ""
        return LabelText(self.signed_product_id, identifier, profile=profile, host=host)


@dataclass(frozen=True, slots=True)
class Entry:
    """One payload.

    Attributes:
        id: its class and number, such as ``schema-03``.
        about: what is wrong with it; of a good one, what is special.
        payload: the bytes in the code; empty where ``body`` is what matters.
        body: of the request to ``scan-qr``.
        status: of our service's answer.
        error: the answer's ``error``; empty for a label that is taken.
        shows: of a good label: product and identifier.
    """

    id: str
    about: str
    payload: bytes
    body: bytes
    status: int
    error: str
    shows: tuple[str, str] | None

    @property
    def is_good(self) -> bool:
        """Whether a server must take it."""
        return not self.error


def read_corpus(setting: Setting) -> list[Entry]:
    """All payloads, made for these products."""
    rows = json.loads(files("simulator.labels").joinpath(CORPUS_JSON).read_text("utf-8"))
    names = _placeholders(setting)

    def fill_in(text: str) -> str:
        for name, value in names.items():
            text = text.replace(name, value)
        return text

    return [_entry(row, setting, fill_in) for row in rows]


def _entry(row: dict[str, Any], setting: Setting, fill_in: Callable[[str], str]) -> Entry:
    if "label" in row:
        payload = _signed_label(setting, **row["label"]).encode()
    else:
        text = fill_in(row.get("text", ""))
        text = text.replace("<fill>", "a" * (row.get("bytes", 0) - len(text) + len("<fill>")))
        payload = text.encode(row.get("encoding", "utf-8"))
    shows = (fill_in(row["shows"][0]), fill_in(row["shows"][1])) if "shows" in row else None
    body = row["body"].encode("latin-1") if "body" in row else json.dumps({"qr_data": _scanned(payload)}).encode()
    return Entry(row["id"], row["about"], payload, body, row["status"], row.get("error", ""), shows)


def _scanned(payload: bytes) -> str:
    """What a scanner hands over: UTF-8 or, where it is none, ISO 8859-1, as the standard of QR has it."""
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return payload.decode("latin-1")


def _placeholders(setting: Setting) -> dict[str, str]:
    names = {
        "<product_id>": setting.product_id,
        "<signed_product_id>": setting.signed_product_id,
        "<unknown_product_id>": UNKNOWN_PRODUCT,
        "<identifier>": IDENTIFIER,
        "<host>": setting.host,
    }
    for profile in (JSON, LINK, COMPACT):
        label = setting.label(profile)
        names[f"<plain_{profile}>"] = encode_label(replace(label, product_id=setting.product_id))
        names[f"<signed_{profile}>"] = signed_text(label, setting.signer)
        names[f"<sig_{profile}>"] = setting.signer.sign(label).sig or ""
    return names


def _signed_label(setting: Setting, *, profile: str, sig: str, identifier: str = IDENTIFIER) -> str:
    label = setting.label(profile, identifier)
    return encode_label(replace(label, sig=_sign(setting, label, sig)))


def _sign(setting: Setting, label: LabelText, how: str) -> str | None:
    """A signature of a label: ``good``, ``none``, or one that does not hold, by what is wrong with it."""
    good = setting.signer.sign(label).sig or ""
    raw = from_base64url(good) or b""
    other_profile = JSON if label.profile == LINK else LINK
    made: dict[str, Callable[[], str | None]] = {
        "good": lambda: good,
        "none": lambda: None,
        "stranger": lambda: _stranger(setting).sign(label).sig,
        "flipped": lambda: to_base64url(raw[:5] + bytes([raw[5] ^ 4]) + raw[6:]),
        "zeros": lambda: to_base64url(bytes(len(raw))),
        "other-device": lambda: setting.signer.sign(replace(label, device_identifier="SIM-000002")).sig,
        "other-product": lambda: setting.signer.sign(replace(label, product_id=setting.product_id)).sig,
        "other-profile": lambda: setting.signer.sign(setting.label(other_profile)).sig,
    }
    return made[how]()


def _stranger(setting: Setting) -> LabelSigner:
    """A key that signs no product here."""
    return LabelSigner(setting.signer.key.kind, b"a key that signs no product here"[:32])


def made_up_signer() -> LabelSigner:
    """A key that everybody can make again: good for a corpus and for nothing else."""
    return LabelSigner(ED25519, b"the public secret of this corpus"[:32])


def write_corpus(out: Path, setting: Setting) -> int:
    """Write each payload as a picture, where zxing-cpp reads it back, and ``corpus.json``; return how many pictures.

    Raises:
        LabelError: the folder cannot be written, or holds something else.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()) and not (out / CORPUS_JSON).exists():
            raise LabelError(f"{out} holds something else than a corpus: choose another --out")
        rows = []
        pictures = 0
        for entry in read_corpus(setting):
            row: dict[str, Any] = {
                "id": entry.id,
                "about": entry.about,
                "request_body": entry.body.decode("latin-1"),
                "status": entry.status,
                "error": entry.error,
            }
            if png := _draw(entry.payload):
                row["png"] = f"{entry.id}.png"
                write_whole(out / row["png"], png)
                pictures += 1
            rows.append(row)
        document = {
            "product_id": setting.product_id,
            "signed_product_id": setting.signed_product_id,
            "signed_by": setting.signer.key.shown,
            "entries": rows,
        }
        write_whole(out / CORPUS_JSON, json.dumps(document, indent=1) + "\n")
    except OSError as problem:
        raise LabelError(cannot_write(out, problem, "another --out")) from None
    return pictures


def _draw(payload: bytes) -> bytes | None:
    """The picture of a payload, or None when no code holds it, or readers take its bytes for something else."""
    if not payload:
        return None
    try:
        png = png_of(payload, dots=_DOTS)
    except LabelError:
        return None
    return png if read_drawing(png) == [_scanned(payload)] else None
