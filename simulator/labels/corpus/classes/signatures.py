"""Signatures that do not hold, and good ones that stand where they do not belong."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace

from simulator.labels.corpus.case import NO_LABEL, NOT_SIGNED, Case, Setting, case
from simulator.wire.base64url import from_base64url, to_base64url
from simulator.wire.qr import LabelText, encode_label
from simulator.wire.qr.label import HMAC_BYTES

_PROFILES = ("json", "link", "compact")


def _signed(setting: Setting, profile: str) -> LabelText:
    return setting.signer.sign(setting.label(profile, signed=True))


def signatures(setting: Setting) -> Iterator[Case]:
    """The label is in good form; its signature does not hold."""
    random = setting.random("signatures")
    for profile in _PROFILES:
        label = _signed(setting, profile)
        raw = from_base64url(label.sig or "") or b""
        yield case(f"{profile}: not signed", encode_label(replace(label, sig=None)), NOT_SIGNED)
        yield case(f"{profile}: signed by a strange key", encode_label(setting.stranger.sign(label)), NOT_SIGNED)
        for at in sorted(random.sample(range(len(raw)), 3)):
            flipped = raw[:at] + bytes([raw[at] ^ 1 << random.randrange(8)]) + raw[at + 1 :]
            wrong = f"{profile}: one bit of byte {at} of the signature is turned round"
            yield case(wrong, encode_label(replace(label, sig=to_base64url(flipped))), NOT_SIGNED)
        other_size = 64 if len(raw) == HMAC_BYTES else HMAC_BYTES
        for wrong, other in (
            ("zeros", bytes(len(raw))),
            ("ones", b"\xff" * len(raw)),
            ("the signature backwards", raw[::-1]),
            ("a signature of the other algorithm's size", random.randbytes(other_size)),
        ):
            yield case(f"{profile}: {wrong}", encode_label(replace(label, sig=to_base64url(other))), NOT_SIGNED)
    yield from _texts_of_signatures(setting)


def _texts_of_signatures(setting: Setting) -> Iterator[Case]:
    label = _signed(setting, "json")
    sig = label.sig or ""
    raw = from_base64url(sig) or b""
    last = chr(ord(sig[-1]) + 1)
    for wrong, text in (
        ("with padding", sig + "=" * (-len(sig) % 4)),
        ("with the other two characters of base64", base64.b64encode(b"\xfb\xff" + raw[2:]).decode().rstrip("=")),
        ("in hexadecimal digits", raw.hex()),
        ("with spare bits set", sig[:-1] + last),
        ("one character shorter", sig[:-1]),
        ("one character longer", sig + "A"),
        ("with a line break", sig + "\n"),
        ("with a space before it", " " + sig),
        ("one byte", "AA"),
        ("no base64", "!!!!"),
        ("the word none", "none"),
        ("a token", "eyJhbGciOiJub25lIn0.e30."),
    ):
        yield case(f"the signature {wrong}", _as_signed(_members(label, text)), NOT_SIGNED)
    members = _members(label, sig)
    for wrong, changed in (
        ("another order of the members", {"sig": sig, **{k: v for k, v in members.items() if k != "sig"}}),
        ("a member that nobody signed", {**members, "batch": 7}),
        ("a member that names the algorithm", {**members, "alg": "none"}),
        ("no version", {k: v for k, v in members.items() if k != "v"}),
    ):
        yield case(f"a good signature, and {wrong}", _as_signed(changed), NO_LABEL)
    yield case(
        "a good signature under another name", _as_signed({**_members(label, ""), "sig": None, "s": sig}), NOT_SIGNED
    )


def _as_signed(members: dict[str, object]) -> str:
    """JSON as labels are signed: what is beyond ASCII is escaped."""
    return json.dumps(members, separators=(",", ":"))


def _members(label: LabelText, sig: str) -> dict[str, object]:
    return {"v": 1, "product_id": label.product_id, "device_identifier": label.device_identifier, "sig": sig}


def replays(setting: Setting) -> Iterator[Case]:
    """A signature that holds, taken from another label."""
    for profile in _PROFILES:
        label = _signed(setting, profile)
        yield case(
            f"{profile}: of the device before", encode_label(replace(label, device_identifier="SIM-000002")), NOT_SIGNED
        )
        yield case(
            f"{profile}: of the same device with a character more",
            encode_label(replace(label, device_identifier=setting.identifier + "0")),
            NOT_SIGNED,
        )
        of_other_product = setting.signer.sign(setting.label(profile))
        yield case(
            f"{profile}: of a label of another product",
            encode_label(replace(label, sig=of_other_product.sig)),
            NOT_SIGNED,
        )
        for other in _PROFILES:
            if other != profile:
                moved = setting.label(other, signed=True, sig=label.sig)
                yield case(f"{profile}: moved to a {other}", encode_label(moved), NOT_SIGNED)
    link = _signed(setting, "link")
    yield case("link: moved to another host", encode_label(replace(link, host="evil.example")), NOT_SIGNED)
    swapped = replace(_signed(setting, "json"), device_identifier=setting.identifier[::-1])
    yield case("json: the identifier backwards", encode_label(swapped), NOT_SIGNED)
    text = encode_label(_signed(setting, "json"))
    sig = to_base64url(base64.urlsafe_b64decode(setting.signer.sign_bytes(text.encode()) + "=="))
    yield case(
        "json: the same key over the text without the prefix",
        encode_label(replace(_signed(setting, "json"), sig=sig)),
        NOT_SIGNED,
    )
