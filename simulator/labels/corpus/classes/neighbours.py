"""Good labels close to bad ones: a server that refuses everything must not pass."""

from __future__ import annotations

import json
from collections.abc import Iterator

from simulator.labels.corpus.case import TAKEN, Case, Setting, case, to_json
from simulator.labels.corpus.classes import injections

_PROFILES = ("json", "link", "compact")
_QR_BYTES = 4096


def good_labels(setting: Setting) -> Iterator[Case]:
    """Each profile, signed and not, and what a lenient reader of unsigned ``json`` takes."""
    shows = (setting.product_id, setting.identifier)
    for profile in _PROFILES:
        yield case(f"{profile}, not signed", setting.plain(profile), TAKEN, shows=shows)
        signed = setting.signed(profile)
        yield case(f"{profile}, signed", signed, TAKEN, shows=(setting.signed_product_id, setting.identifier))
    good, members = setting.json(), setting.members()
    for wrong, text in (
        ("white space between the members", json.dumps(members)),
        ("on several lines", json.dumps(members, indent=2)),
        ("a line break at the end", good + "\n"),
        ("another order of the members", to_json(dict(reversed(members.items())))),
        ("a member that is not known", setting.json(batch=7)),
        ("a member that is not known, nested", setting.json(factory={"line": [1, 2, {"shift": None}]})),
        ("no version", setting.json(v=...)),
        ("sig is null", setting.json(sig=None)),
        ("a letter as an escape", good.replace("SIM", "\\u0053IM")),
        ("30 levels", good[:-1] + ',"x":' + "[" * 30 + "]" * 30 + "}"),
        ("the greatest integer", good[:-1] + ',"x":9223372036854775807}'),
    ):
        yield case(f"json: {wrong}", text, TAKEN, shows=shows)
    full = good[:-1] + ',"x":"' + "a" * (_QR_BYTES - len(good.encode()) - 7) + '"}'
    yield case("json: 4,096 bytes to the letter", full, TAKEN, shows=shows, drawn=False)


def good_identifiers(setting: Setting) -> Iterator[Case]:
    """Identifiers that look like trouble and are only text."""
    plain = (
        ("512 characters", "a" * 512),
        ("one character", "1"),
        ("an umlaut", "T\u00fcr-1"),
        ("an umlaut in two characters", "Tu\u0308r-1"),
        ("Japanese", "\u6e29\u5ea6\u8a08-1"),
        ("an emoji", "SIM-\U0001f600"),
        ("a space inside", "SIM 000001"),
        ("two spaces inside", "SIM  1"),
        ("the word null", "null"),
        ("the word true", "true"),
        ("a number", "1e6"),
        ("quotes and a backslash", 'a"b\\c'),
        ("a percent sign", "100%25"),
        ("characters of a link", "a&d=b#c?d+e"),
        ("another label's text", setting.json()),
    )
    for special, value in plain:
        text = setting.json(device_identifier=value)
        yield case(f"json: {special}", text, TAKEN, shows=(setting.product_id, value))
    for special, value in (plain[2], plain[6], plain[12], plain[13]):
        for profile in ("link", "compact"):
            text = setting.signed(profile, device_identifier=value)
            yield case(f"{profile}, signed: {special}", text, TAKEN, shows=(setting.signed_product_id, value))
    for texts in (injections.SQL, injections.TEMPLATES, injections.PATHS, injections.SCRIPTS, injections.SHELL):
        value = texts[0]
        text = setting.signed("json", device_identifier=value)
        yield case(f"json, signed: {value}", text, TAKEN, shows=(setting.signed_product_id, value))
