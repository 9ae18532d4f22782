"""Bytes and characters: other encodings, byte order marks, control characters, white space, look-alike letters."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from html import escape
from urllib.parse import quote

from simulator.labels.corpus.case import NO_LABEL, NO_PRODUCT, NO_REQUEST, NOT_SIGNED, Case, Setting, case


def encodings(setting: Setting) -> Iterator[Case]:
    """A good label in another encoding, or in UTF-8 that is none."""
    good = setting.json()
    for name in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"):
        yield case(f"{name} without a mark", good.encode(name), NO_REQUEST)
    for wrong, text in (
        ("UTF-7", good.replace("{", "+AHs-").replace('"', "+ACI-")),
        ("percent-encoded", quote(good, safe="")),
        ("HTML entities", escape(good)),
        ("base64", base64.b64encode(good.encode()).decode()),
        ("hexadecimal digits", good.encode().hex()),
        ("quoted-printable", good.replace("=", "=3D").replace(":", "=3A")),
        ("quotes with backslashes", good.replace('"', '\\"')),
        ("letters turned by 13", good.translate(_ROT13)),
    ):
        yield case(wrong, text, NO_LABEL)
    raw = good.encode()
    for wrong, payload in (
        ("EBCDIC", good.encode("cp500")),
        ("quotes in overlong form", raw.replace(b'"', b"\xc0\xa2")),
        ("a byte that UTF-8 never has", raw.replace(b"{", b"\xff{", 1)),
        ("a byte that goes on nothing", raw.replace(b"SIM", b"\x80SIM")),
        ("NUL in overlong form", raw.replace(b"SIM", b"\xc0\x80SIM")),
        ("a character beyond U+10FFFF", raw.replace(b"SIM", b"\xf4\x90\x80\x80")),
        ("a surrogate pair in CESU-8", raw.replace(b"SIM", b"\xed\xa0\xbd\xed\xb8\x80")),
        ("compressed", b"\x1f\x8b\x08\x01" + raw),
    ):
        yield case(wrong, payload, NO_LABEL)
    umlaut = replace(setting, identifier="T\u00fcr-1")
    yield case("UTF-8 taken for ISO 8859-1", umlaut.forged(umlaut.identifier.encode().decode("latin-1")), NOT_SIGNED)
    yield case("an umlaut in two characters", umlaut.forged("Tu\u0308r-1"), NOT_SIGNED)
    yield case("an umlaut as a question mark", umlaut.forged("T?r-1"), NOT_SIGNED)
    yield case("an umlaut as the replacement character", umlaut.forged("T\ufffdr-1"), NOT_SIGNED)
    for wrong, part in (
        ("a high surrogate alone", b"\\ud83d"),
        ("a low surrogate alone", b"\\ude00"),
        ("surrogates the wrong way round", b"\\ude00\\ud83d"),
    ):
        body = b'{"qr_data":"' + part + b'"}'
        yield case(f"the request has {wrong}", "\ufffd", NO_REQUEST, body=body, drawn=False)
    body = b'{"qr_data":"\xff"}'
    yield case("the request is no UTF-8", b"\xff", NO_REQUEST, body=body, drawn=False)
    escaped = good.replace("SIM", "\\ud83d")
    yield case("half a surrogate pair as an escape in the label", escaped, NO_LABEL)


_ROT13 = str.maketrans("abcdefghijklmnopqrstuvwxyz", "nopqrstuvwxyzabcdefghijklm")


def byte_order_marks(setting: Setting) -> Iterator[Case]:
    """A mark at the beginning, as editors and spreadsheets write it."""
    for profile in ("json", "link", "compact"):
        text = setting.plain(profile)
        yield case(f"{profile}: U+FEFF before it", "\ufeff" + text, NO_LABEL)
        yield case(f"{profile}: U+FEFF after it", text + "\ufeff", NO_LABEL)
        yield case(f"{profile}: the mark of UTF-8 as ISO 8859-1 shows it", "\u00ef\u00bb\u00bf" + text, NO_LABEL)
    good = setting.json()
    yield case("two marks", "\ufeff\ufeff" + good, NO_LABEL)
    yield case("nothing but a mark", "\ufeff", NO_LABEL)
    yield case(
        "a mark at the beginning of the identifier", setting.json(device_identifier="\ufeffSIM-000001"), NO_LABEL
    )
    yield case("a mark in a name", good.replace('"product_id', '"\ufeffproduct_id'), NO_LABEL)
    yield case("UTF-16, little end first, with its mark", good.encode("utf-16-le").join((b"\xff\xfe", b"")), NO_REQUEST)
    yield case("UTF-16, big end first, with its mark", b"\xfe\xff" + good.encode("utf-16-be"), NO_REQUEST)


def controls(setting: Setting) -> Iterator[Case]:
    """Control characters, and characters that nobody sees."""
    good = setting.json()
    for code in (0x01, 0x07, 0x08, 0x0B, 0x0C, 0x1B, 0x1F):
        yield case(f"U+{code:04X} in the identifier", good.replace("SIM-", f"SIM{chr(code)}"), NO_LABEL)
    for code in (0x7F, 0x80, 0x85, 0x9B, 0x200B, 0x200D, 0x200E, 0x202E, 0x2028, 0x2029, 0x2060, 0x2066, 0xAD, 0xE0041):
        yield case(f"U+{code:04X} in the identifier", setting.json(device_identifier=f"SIM{chr(code)}1"), NO_LABEL)
    for text in ("\\u0000", "\\u0007", "\\n", "\\r\\n", "\\t", "\\b", "\\u001b[31m", "\\u202e", "\\u0085"):
        yield case(f"{text} as an escape in the identifier", good.replace("SIM-", f"SIM{text}"), NO_LABEL)
    yield case("NUL in the identifier", good.replace("SIM-", "SIM\0"), NO_REQUEST)
    yield case("NUL at the end", good + "\0", NO_REQUEST)
    yield case("nothing but NUL", "\0", NO_REQUEST)
    yield case("the end of a transmission after it", good + "\x04", NO_LABEL)
    yield case("the separators of GS1 between the members", good.replace(",", "\x1d"), NO_LABEL)
    yield case("link: a tab before the host", setting.plain("link").replace("//", "//\t"), NO_LABEL)
    yield case("link: a line break in it", setting.plain("link").replace("&d=", "\n&d="), NO_LABEL)


def white_space(setting: Setting) -> Iterator[Case]:
    """Spaces where none belong."""
    for wrong, value in (
        ("a space before it", " SIM-000001"),
        ("a space after it", "SIM-000001 "),
        ("nothing but a space", " "),
        ("a no-break space in it", "SIM\u00a0000001"),
        ("a thin space in it", "SIM\u2009000001"),
        ("an ideographic space in it", "SIM\u3000000001"),
    ):
        yield case(f"the identifier with {wrong}", setting.json(device_identifier=value), NO_LABEL)
    yield case("the product id with a space after it", setting.json(product_id=setting.product_id + " "), NO_LABEL)
    yield case("a no-break space between the members", setting.json().replace(",", ",\u00a0"), NO_LABEL)
    for profile in ("link", "compact"):
        text = setting.plain(profile)
        for wrong, other in (
            ("a space before it", " " + text),
            ("a space after it", text + " "),
            ("a line break after it", text + "\n"),
            ("a carriage return after it", text + "\r"),
            ("a tab after it", text + "\t"),
            ("a line break in its middle", text[:20] + "\n" + text[20:]),
        ):
            yield case(f"{profile}: {wrong}", other, NO_LABEL)
    signed = setting.signed("json")
    for wrong, text in (
        ("a space between members", signed.replace(",", ", ", 1)),
        ("a space after a colon", signed.replace(":", ": ", 1)),
        ("a space before it", " " + signed),
        ("a line break after it", signed + "\n"),
        ("a carriage return and a line break after it", signed + "\r\n"),
    ):
        yield case(f"signed json: {wrong}", text, NO_LABEL)


def look_alike_letters(setting: Setting) -> Iterator[Case]:
    """Letters and digits of other scripts that look the same in print."""
    good = setting.json()
    for wrong, text in (
        ("a Cyrillic o in a name", good.replace("product", "pr\u043educt")),
        ("a Greek v in a name", good.replace('"v"', '"\u03bd"').replace("device_id", "de\u03bdice_id")),
        ("a full-width low line in a name", good.replace("product_id", "product\uff3fid")),
        ("a full-width colon", good.replace(":", "\uff1a")),
        ("full-width braces", good.replace("{", "\uff5b").replace("}", "\uff5d")),
        ("full-width quotes", good.replace('"', "\uff02")),
    ):
        yield case(wrong, text, NO_LABEL)
    for wrong, text in (
        ("a Cyrillic letter in a signed identifier", setting.forged("S\u0406M-000001")),
        ("full-width digits in a signed identifier", setting.forged("SIM-\uff10\uff10\uff10\uff10\uff10\uff11")),
        ("Arabic digits in a signed identifier", setting.forged("SIM-\u0660\u0660\u0660\u0660\u0660\u0661")),
        ("another hyphen in a signed identifier", setting.forged("SIM\u2010000001")),
        ("the letter O for zeros in a signed identifier", setting.forged("SIM-OOOOO1")),
        ("the letter l for one in a signed identifier", setting.forged("SIM-00000l")),
    ):
        yield case(wrong, text, NOT_SIGNED)
    digit = setting.product_id[0]
    wide = chr(ord(digit) + 0xFEE0) if "!" <= digit <= "~" else "\uff10"
    yield case(
        "a full-width digit in the product id", setting.json(product_id=wide + setting.product_id[1:]), NO_PRODUCT
    )
    other = setting.product_id.replace("-", "\u2010") if "-" in setting.product_id else setting.product_id + "\u2010"
    yield case("another hyphen in the product id", setting.json(product_id=other), NO_PRODUCT)
