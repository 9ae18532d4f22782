"""Writes labels as text and reads them, in every profile."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from agent.errors import InvalidQr
from simulator.wire.limits import QR_BYTES
from simulator.wire.qr import compact_form, json_form, link_form
from simulator.wire.qr.label import COMPACT, JSON, LINK, LabelText, check_values

PREFIX: Final = b"device-agent label v1\0"
"""Before what is signed, so that a signature of the same key for anything else is never one for a label."""

_WRITERS: Final = {JSON: json_form.write, LINK: link_form.write, COMPACT: compact_form.write}
_LINK_START: Final = re.compile(r"https?:", re.IGNORECASE)
_COMPACT_START: Final = re.compile(r"dl[0-9]+:", re.IGNORECASE)


def encode_label(label: LabelText) -> str:
    """The label's text, the same for the same label.

    Raises:
        InvalidQr: a value is empty, too long or cannot be printed, the profile cannot carry it, there is no such
            profile, or the text exceeds 4 KiB.
    """
    write = _WRITERS.get(label.profile)
    if write is None:
        raise InvalidQr("unknown_profile", f"there is no profile {label.profile!r}: give {', '.join(_WRITERS)}")
    text = write(label)
    _check_size(len(text.encode()))
    check_values(label)
    return text


def signed_bytes(label: LabelText) -> bytes:
    """What the label's signature is over: :data:`PREFIX` and the text that the label would have without it.

    The profile and the host of a link are so covered as well: a signature cannot be moved to another kind of label.

    Raises:
        InvalidQr: as :func:`encode_label`.
    """
    return PREFIX + encode_label(replace(label, sig=None)).encode()


def parse_label(text: str) -> LabelText:
    """The label that a scanned text is. Its signature is not checked here (:mod:`simulator.wire.qr.keys`).

    Raises:
        InvalidQr: with a ``reason``, and a sentence for a person: ``empty``, ``too_large``, ``not_json``,
            ``not_an_object``, ``unknown_version``, ``missing_field``, ``wrong_type``, ``not_a_link``, ``wrong_host``,
            ``not_compact``, ``too_long``, ``unprintable`` or ``not_exact``.
    """
    if not text.strip():
        raise InvalidQr("empty", "the QR text is empty")
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise InvalidQr("not_json", "the QR text contains a lone surrogate") from None
    _check_size(len(raw))
    if _LINK_START.match(text):
        label = link_form.read(text)
    elif _COMPACT_START.match(text):
        label = compact_form.read(text)
    else:
        label = json_form.read(raw)
    check_values(label)
    if (label.sig is not None or label.profile != JSON) and encode_label(label) != text:
        raise InvalidQr("not_exact", "the label is not written as its profile writes it, to the letter")
    return label


def _check_size(size: int) -> None:
    if size > QR_BYTES:
        raise InvalidQr("too_large", f"{size} bytes of QR text are more than the limit of {QR_BYTES}")
