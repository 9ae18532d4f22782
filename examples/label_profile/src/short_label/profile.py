"""``SL*PRODUCT*IDENTIFIER*CHECK``: the check is the signature's first characters or, without a key, of a checksum."""

from __future__ import annotations

import re
import zlib

from simulator.wire.qr import LabelText
from simulator.wire.qr.keys import LabelSigner

_TEXT = re.compile(r"SL\*([0-9A-Z ./:$%+-]+)\*([0-9A-Z ./:$%+-]+)\*([0-9A-F]{8})")


class ShortLabel:
    """The profile. A class without arguments is made once for each command."""

    def write(self, label: LabelText, signer: LabelSigner | None) -> str:
        """The text of one code; what cannot be written is a ValueError, which the command shows as one line."""
        body = f"SL*{label.product_id}*{label.device_identifier}*"
        signed = body if signer is None else body + signer.sign_bytes(body.encode())
        text = f"{body}{zlib.crc32(signed.encode()):08X}"
        if _TEXT.fullmatch(text) is None:
            raise ValueError("a short label takes capital letters, digits and a few signs")
        return text

    def read(self, text: str) -> LabelText:
        """What such a text says; the server checks the rest."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ValueError("this is no short label")
        return LabelText(found[1], found[2], found[3])
