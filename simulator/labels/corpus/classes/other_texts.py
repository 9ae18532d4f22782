"""Texts that are no label at all: nothing, others' codes, half a label, two labels, too much; other symbols than QR."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from simulator.labels.corpus.case import NO_LABEL, NO_PRODUCT, NOT_SIGNED, TOO_LARGE, Case, Setting, case, to_json

_PROFILES: Final = ("json", "link", "compact")
_QR_BYTES: Final = 4096
_BODY_BYTES: Final = 262_144

_STRANGERS: Final = (
    ("a web page", "https://www.example.com/"),
    ("a web page over plain HTTP", "http://www.example.com/menu?table=7"),
    ("a network's password", "WIFI:T:WPA;S:guest;P:correct horse;;"),
    ("a contact", "BEGIN:VCARD\r\nVERSION:3.0\r\nN:Doe;Jane\r\nTEL:+15550100\r\nEND:VCARD"),
    ("an event", "BEGIN:VEVENT\r\nSUMMARY:Audit\r\nDTSTART:20260101T090000Z\r\nEND:VEVENT"),
    ("an e-mail", "mailto:qa@example.com?subject=label"),
    ("a telephone number", "tel:+15550100"),
    ("a text message", "SMSTO:+15550100:hello"),
    ("a place", "geo:48.2010,16.3695"),
    ("a one-time password", "otpauth://totp/Example:qa?secret=JBSWY3DPEHPK3PXP&issuer=Example"),
    ("a payment", "bitcoin:1BoatSLRHtKNngkdXEeobR76b53LETtpyT?amount=0.1"),
    ("a Matter device", "MT:Y.K90SO527JA0648G00"),
    ("a HomeKit device", "X-HM://0023ISYWYABCD"),
    ("a GS1 digital link", "https://id.gs1.org/01/09506000134352/21/SIM-000001"),
    ("a health certificate", "HC1:6BFOXN%TSMAHN-HWWK2RLQAE8UG"),
    ("a serial number alone", "SIM-000001"),
    ("a hardware address", "00:1A:2B:3C:4D:5E"),
    ("words", "Please scan the other side"),
)


def strangers(setting: Setting) -> Iterator[Case]:
    """Codes that stand on the same box."""
    for wrong, text in _STRANGERS:
        yield case(wrong, text, NO_LABEL)
    yield case("the product id alone", setting.product_id, NO_LABEL)


def empty(_: Setting) -> Iterator[Case]:
    """Nothing, in several ways."""
    for wrong, text in (
        ("nothing", ""),
        ("one space", " "),
        ("a line break", "\n"),
        ("a carriage return and a line break", "\r\n"),
        ("tabs", "\t\t\t"),
        ("a no-break space", "\u00a0"),
        ("an ideographic space", "\u3000"),
        ("a zero-width space", "\u200b"),
        ("4 KiB of spaces", " " * _QR_BYTES),
        ("two quotes", '""'),
        ("two single quotes", "''"),
    ):
        yield case(wrong, text, NO_LABEL)


def truncated(setting: Setting) -> Iterator[Case]:
    """Good signed labels, cut: a scanner with a small buffer, a form field with a limit."""
    random = setting.random("truncated")
    for profile in _PROFILES:
        text = setting.signed(profile)
        # Cut behind its product, a link is in good form still; those come below.
        end = text.index("&d=") if profile == "link" else len(text) - 30
        last = {len(text) - 1} if profile != "link" else set()
        for left in sorted({1, 5, *last, *random.sample(range(6, end), 4)}):
            yield case(f"{profile}: {left} of {len(text)} characters", text[:left], NO_LABEL)
        yield case(f"{profile}: the first character is missing", text[1:], NO_LABEL)
    link = setting.signed("link")
    yield case("link: the signature is cut", link[:-9], NOT_SIGNED)
    yield case("link: cut in the identifier", link[: link.index("&s=") - 3], NOT_SIGNED)
    yield case("link: the product is cut", link[: link.index("&d=")], NO_LABEL)
    yield case("json: cut and closed again", setting.signed("json")[:-9] + '"}', NOT_SIGNED)


def repeated(setting: Setting) -> Iterator[Case]:
    """More than one label in one code: two scans in one buffer, two codes read as one."""
    for profile in _PROFILES:
        text = setting.plain(profile)
        for what, between in (("", ""), (" with a line between", "\n"), (" with a space between", " ")):
            yield case(f"{profile}: the same label twice{what}", text + between + text, NO_LABEL)
    members = setting.members()
    yield case("an array of two labels", to_json([members, {**members, "device_identifier": "SIM-000002"}]), NO_LABEL)
    yield case("two labels of different profiles", setting.plain("json") + setting.plain("compact"), NO_LABEL)
    yield case("a label and half of another", setting.plain("json") * 2 + '{"v":1,', NO_LABEL)


def oversized(setting: Setting) -> Iterator[Case]:
    """More than 4 KiB: no QR code holds it, but nobody has to send what a code holds."""
    head = setting.json(x="")[:-2]
    for wrong, size in (
        ("one byte too many", _QR_BYTES + 1),
        ("twice the limit", 2 * _QR_BYTES),
        ("64 KiB", 65_536),
        ("more than a request may have", _BODY_BYTES + 1),
    ):
        yield case(
            f"{wrong}, in a good label", head + "a" * (size - len(head.encode()) - 2) + '"}', TOO_LARGE, drawn=False
        )
    yield case("nothing but digits", "7" * (_QR_BYTES + 1), TOO_LARGE, drawn=False)
    yield case("2,049 letters of two bytes each", "ü" * 2049, TOO_LARGE, drawn=False)
    yield case("a link", setting.plain("link") + "&x=" + "a" * _QR_BYTES, TOO_LARGE, drawn=False)


def foreign(setting: Setting) -> Iterator[Case]:
    """Labels in good form of products that this account does not have."""
    nobody = setting.no_product_id()
    for profile in _PROFILES:
        yield case(f"{profile}: nobody's product", setting.plain(profile, product_id=nobody), NO_PRODUCT)
        yield case(f"{profile}: the same in capitals", setting.plain(profile, product_id=nobody.upper()), NO_PRODUCT)
    signed = setting.signer.sign(setting.label("json", product_id=nobody))
    yield case("nobody's product, signed", setting.plain("json", product_id=nobody, sig=signed.sig), NO_PRODUCT)
    near = setting.product_id
    last = "0" if near[-1] != "0" else "1"
    for wrong, product_id in (
        ("the product id with another last digit", near[:-1] + last),
        ("the product id without its last digit", near[:-1].strip()),
        ("the product id with a digit more", near + "0"),
        ("the product id without hyphens", near.replace("-", "") if "-" in near else near + "-"),
        ("the product id in braces", "{" + near + "}"),
        ("the product id as a URN", "urn:uuid:" + near),
        ("the product id in base64", "AZOy9H5efDqbHi9tSowOEQ"),
        ("the nil UUID", "00000000-0000-0000-0000-000000000000"),
        ("the name of a product", "Door controller"),
        ("a wildcard", "*"),
        ("a pattern", "%"),
        ("the word null", "null"),
        ("zero", "0"),
    ):
        yield case(wrong, setting.json(product_id=product_id), NO_PRODUCT)


def symbologies(setting: Setting) -> Iterator[Case]:
    """What else stands on a box: the same device in another symbol, a good label in a symbol that is no QR code."""
    for symbology, wrong, text in (
        ("Code128", "the identifier as a bar code", "SIM-000001"),
        ("Code39", "the identifier as a bar code", "SIM-000001"),
        ("Code93", "the identifier as a bar code", "SIM-000001"),
        ("Codabar", "a number as a bar code", "A000001B"),
        ("ITF", "a number as a bar code", "00000012"),
        ("EAN13", "an article number", "5901234123457"),
        ("EAN8", "a short article number", "96385074"),
        ("UPCA", "an article number", "036000291452"),
        ("DataBar", "an article number", "0950110153000"),
        ("DataMatrix", "the identifier", "SIM-000001"),
        ("Aztec", "a ticket", "M1DOE/JANE            EABC123 VIEJFKOS 0087"),
        ("PDF417", "the identifier", "SIM-000001"),
        ("MicroQRCode", "the identifier, in the small relative of QR", "SIM-000001"),
        ("RMQRCode", "the identifier, in the flat relative of QR", "SIM-000001"),
    ):
        yield case(f"{symbology}: {wrong}", text, NO_LABEL, symbology=symbology)
    for symbology in ("DataMatrix", "Aztec", "PDF417"):
        for profile in ("json", "link", "compact"):
            wrong = f"{symbology}: a good label of profile {profile}, which a scanner for QR never hands over"
            yield case(wrong, setting.plain(profile), None, symbology=symbology)
    compact = setting.plain("compact")
    yield case("Code128: a good label of profile compact", compact, None, symbology="Code128")
