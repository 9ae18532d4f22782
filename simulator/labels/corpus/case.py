"""One payload with what is wrong with it, and the products that all of them are made for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final
from urllib.parse import quote

from simulator.wire.qr import LabelText, encode_label
from simulator.wire.qr.keys import LabelSigner, signed_text

QR: Final = "QRCode"


@dataclass(frozen=True, slots=True)
class Expected:
    """What ``scan-qr`` has to answer to a case.

    Attributes:
        status: of HTTP.
        error: the body's ``error``; empty for a label that is taken.
    """

    status: int
    error: str = ""


TAKEN: Final = Expected(200)
NO_LABEL: Final = Expected(400, "invalid_qr")
NOT_SIGNED: Final = Expected(400, "invalid_signature")
NO_REQUEST: Final = Expected(400, "validation_error")
NO_PRODUCT: Final = Expected(404, "product_not_found")
TOO_LARGE: Final = Expected(413, "payload_too_large")


@dataclass(frozen=True, slots=True)
class Case:
    """One payload of the corpus, and what is expected of it.

    Attributes:
        wrong: what is wrong with it; of a good one, what is special.
        payload: the bytes in the code.
        expected: the answer to it; None where no scanner may hand it over, so that no server ever sees it.
        symbology: what it is drawn as, in zxing-cpp's words.
        body: the request's body, where it is not ``{"qr_data": <the payload as text>}``.
        shows: of a good label: product and identifier that the answer must name.
        drawn: whether there is a picture of it, where the symbol holds it.
    """

    wrong: str
    payload: bytes
    expected: Expected | None
    symbology: str = QR
    body: bytes | None = None
    shows: tuple[str, str] | None = None
    drawn: bool = True

    @property
    def text(self) -> str:
        """What a scanner hands over: UTF-8 or, where it is none, ISO 8859-1, as the standard of QR has it."""
        try:
            return self.payload.decode()
        except UnicodeDecodeError:
            return self.payload.decode("latin-1")

    @property
    def request(self) -> bytes:
        """The body of ``POST /onboarding/scan-qr``."""
        if self.body is not None:
            return self.body
        return json.dumps({"qr_data": self.text}, separators=(",", ":")).encode()


def case(wrong: str, payload: str | bytes, expected: Expected | None, **more: Any) -> Case:
    """A case out of text or bytes."""
    return Case(wrong, payload.encode() if isinstance(payload, str) else payload, expected, **more)


@dataclass(frozen=True, slots=True)
class Setting:
    """The products that the payloads are made for.

    Attributes:
        product_id: a product without ``label_key``.
        signed_product_id: one whose ``label_key`` is that of ``signer``.
        signer: its key.
        host: of links.
        seed: all that looks random comes from it.
    """

    product_id: str
    signed_product_id: str
    signer: LabelSigner
    host: str = "onboard.example.com"
    seed: int = 0
    identifier: str = field(default="SIM-000001")

    def random(self, purpose: str) -> Random:
        """Randomness that depends on the seed and the purpose alone."""
        return Random(f"{self.seed}/{purpose}")  # noqa: S311 - test data

    @property
    def stranger(self) -> LabelSigner:
        """A key that signs no product here."""
        return LabelSigner(self.signer.key.kind, self.random("stranger").randbytes(32))

    def no_product_id(self, purpose: str = "nobody") -> str:
        """A UUID that no product has."""
        digits = self.random(purpose).randbytes(16).hex()
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"

    def members(self, **changed: Any) -> dict[str, Any]:
        """The members of an unsigned ``json`` label, some changed; ``...`` takes one out."""
        members = {"v": 1, "product_id": self.product_id, "device_identifier": self.identifier, **changed}
        return {name: value for name, value in members.items() if value is not ...}

    def json(self, **changed: Any) -> str:
        """The members of an unsigned ``json`` label as compact text."""
        return to_json(self.members(**changed))

    def label(self, profile: str, *, signed: bool = False, **changed: Any) -> LabelText:
        """A label of one of the two products, without its signature."""
        values = {
            "product_id": self.signed_product_id if signed else self.product_id,
            "device_identifier": self.identifier,
            "profile": profile,
            "host": self.host if profile == "link" else "",
            **changed,
        }
        return LabelText(**values)

    def plain(self, profile: str, **changed: Any) -> str:
        """A good label of the product that signs none."""
        return encode_label(self.label(profile, **changed))

    def plain_of(self, label: LabelText) -> str:
        """The text of a label without its signature."""
        return encode_label(replace(label, sig=None))

    def forged(self, identifier: str) -> str:
        """A signed ``json`` label of which the identifier was changed."""
        return encode_label(replace(self.signer.sign(self.label("json", signed=True)), device_identifier=identifier))

    def percent_link(self, identifier: str) -> str:
        """A link with an identifier that no label may have."""
        return self.plain("link").replace(self.identifier, quote(identifier, safe=""))

    def signed(self, profile: str, **changed: Any) -> str:
        """A good label of the product that signs its labels."""
        return signed_text(self.label(profile, signed=True, **changed), self.signer)


Cases = Callable[[Setting], Iterator[Case]]


@dataclass(frozen=True, slots=True)
class CaseClass:
    """A class of payloads.

    Attributes:
        name: one word.
        about: one line.
        cases: makes them.
        valid: whether a server must take them.
    """

    name: str
    about: str
    cases: Cases
    valid: bool = False


def to_json(value: object) -> str:
    """Compact JSON that keeps text as it is."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
