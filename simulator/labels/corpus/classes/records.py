"""Labels of profile ``compact`` whose base45 or record is wrong."""

from __future__ import annotations

import base64
from collections.abc import Iterator

from simulator.labels.corpus.case import NO_LABEL, NO_PRODUCT, NOT_SIGNED, Case, Setting, case
from simulator.wire.qr import base45


def _compact(record: bytes) -> str:
    return "DL1:" + base45.encode(record)


def records(setting: Setting) -> Iterator[Case]:
    """The base45 is right, the record is not."""
    product, identifier = bytes.fromhex("0193b2f47e5c7c3a9b1e2f6d4a8c0e11"), b"\x0aSIM-000001"
    good = b"\4" + product + identifier
    for wrong, record in (
        ("no record", b""),
        ("one byte", b"\4"),
        ("a kind of signature that there is not", b"\7" + good[1:]),
        ("a flag that there is not", b"\x0c" + good[1:]),
        ("all flags", b"\xff" + good[1:]),
        ("the product is cut", good[:9]),
        ("no identifier", good[:17]),
        ("an identifier that is longer than the record", good[:17] + b"\xffSIM-000001"),
        ("an identifier of length 0", good[:17] + b"\0"),
        ("a byte more", good + b"\0"),
        ("the signature is missing", b"\5" + good[1:]),
        ("a signature of 15 bytes", b"\5" + good[1:] + bytes(15)),
        ("a signature of 17 bytes", b"\5" + good[1:] + bytes(17)),
        ("a signature of 64 bytes where 16 belong", b"\5" + good[1:] + bytes(64)),
        ("a signature of 16 bytes where 64 belong", b"\6" + good[1:] + bytes(16)),
        ("a UUID as text", b"\0\x24" + b"0193b2f4-7e5c-7c3a-9b1e-2f6d4a8c0e11" + identifier),
        ("a product that is no UTF-8", b"\0\2\xff\xfe" + identifier),
        ("an identifier that is no UTF-8", good[:17] + b"\2\xc3("),
        ("an identifier with NUL", good[:17] + b"\3a\0b"),
        ("an identifier that begins with a space", good[:17] + b"\2 a"),
        ("zeros", bytes(40)),
        ("ones", b"\xff" * 40),
    ):
        yield case(wrong, _compact(record), NO_LABEL)
    random = setting.random("records")
    for size in (20, 45, 90):
        noise = b"\x08" + random.randbytes(size)
        yield case(f"{size} random bytes after a flag that there is not", _compact(noise), NO_LABEL)


def base45_texts(setting: Setting) -> Iterator[Case]:
    """The text after ``DL1:`` is no base45."""
    good = setting.plain("compact")
    body = good[4:]
    raw = base45.decode(body)
    for wrong, text in (
        ("a character too many", good + "0"),
        ("a character too few", good[:-1]),
        ("a group that is too large", "DL1::::" + body),
        ("a last group that is too large", "DL1:" + body[: len(body) - len(body) % 3] + "::"),
        ("three spaces at the end", good + "   "),
        ("a character that is none of the 45", "DL1:_" + body[1:]),
        ("an umlaut", "DL1:\u00dc" + body[1:]),
        ("full-width characters", "DL1:\uff21" + body[1:]),
        ("spaces as plus signs", "DL1:" + body.replace(" ", "+") + "++"),
        ("base64 instead", "DL1:" + base64.b64encode(raw).decode()),
        ("base32 instead", "DL1:" + base64.b32encode(raw).decode()),
        ("hexadecimal digits instead", "DL1:" + raw.hex()),
        ("the JSON text instead", "DL1:" + setting.json()),
        ("the JSON text in base45", _compact(setting.json().encode())),
        ("a health certificate's start", "HC1:" + body),
        ("the start twice", "DL1:" + good),
    ):
        yield case(wrong, text, NO_LABEL)


def case_changes(setting: Setting) -> Iterator[Case]:
    """Small letters for capital ones and the other way round, as shops' printers and phones make them."""
    good, link, compact = setting.json(), setting.plain("link"), setting.plain("compact")
    for wrong, text in (
        ("json in capitals", good.upper()),
        ("names in capitals", good.replace("product_id", "PRODUCT_ID")),
        ("a name with a capital", good.replace("device_identifier", "Device_Identifier")),
        ("V for v", good.replace('"v"', '"V"').replace("product_id", "Product_id")),
        ("a literal in capitals", good[:-1] + ',"x":TRUE}'),
        ("link in capitals", link.upper()),
        ("the scheme in capitals", link.replace("https", "HTTPS")),
        ("the scheme with a capital", link.replace("https", "Https")),
        ("the host in capitals", link.replace(setting.host, setting.host.upper())),
        ("the host with a capital", link.replace(setting.host, setting.host.title())),
        ("the path in capitals", link.replace("/onboard", "/ONBOARD")),
        ("the names of the members in capitals", link.replace("?p=", "?P=").replace("&d=", "&D=")),
        ("compact in small letters", compact.lower()),
        ("the start of compact in small letters", "dl1:" + compact[4:]),
    ):
        yield case(wrong, text, NO_LABEL)
    product_id = setting.product_id.upper()
    if product_id != setting.product_id:
        yield case("the product id in capitals", setting.json(product_id=product_id), NO_PRODUCT)
    signed = setting.signed("json")
    yield case("a signed identifier in small letters", setting.forged("sim-000001"), NOT_SIGNED)
    head, _, sig = signed[:-2].rpartition('"')
    yield case("the signature with its case turned round", f'{head}"{sig.swapcase()}"}}', NOT_SIGNED)
