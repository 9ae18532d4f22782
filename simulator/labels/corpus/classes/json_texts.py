"""Labels of profile ``json`` that are no JSON, or the wrong JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from simulator.labels.corpus.case import NO_LABEL, Case, Setting, case, to_json

_NUMBERS: Final = (
    *("1.0", "1e0", "10e-1", "1E+0", "0.9999999999999999999", "1.0000000000000000001"),
    *("01", "+1", "0x1", "0b1", "1_0", "1.", ".1", "1,0", "\uff11", "\u0661", "\u00b9"),
    *("NaN", "Infinity", "-Infinity", "1e999", "-0"),
    *("18446744073709551617", "4294967297", "9" * 400, "1" + "0" * 3000),
)


def schema(setting: Setting) -> Iterator[Case]:
    """A member is missing, or of the wrong type."""
    for name in ("product_id", "device_identifier"):
        yield case(f"{name} is missing", setting.json(**{name: ...}), NO_LABEL)
        for value in (None, True, 7, 1.5, [], ["a"], {}, {"id": "a"}):
            yield case(f"{name} is {to_json(value)}", setting.json(**{name: value}), NO_LABEL)
    for value in (7, False, [], {}, ["AA"]):
        yield case(f"sig is {to_json(value)}", setting.json(sig=value), NO_LABEL)
    yield case("no member but the version", '{"v":1}', NO_LABEL)
    yield case("an empty object", "{}", NO_LABEL)
    members = setting.members()
    renamed = {"v": 1, "productId": members["product_id"], "deviceIdentifier": members["device_identifier"]}
    yield case("the members in camel case", to_json(renamed), NO_LABEL)
    yield case("members of a link", to_json({"p": members["product_id"], "d": members["device_identifier"]}), NO_LABEL)


def top_level(_: Setting) -> Iterator[Case]:
    """JSON, but no object."""
    for text in ("null", "true", "7", "-0", "1e9", '"SIM-000001"', "[]", "[[]]", "[{}]", '["v",1]'):
        yield case(f"{text} instead of an object", text, NO_LABEL)


def version(setting: Setting) -> Iterator[Case]:
    """Versions that do not exist yet, or no longer."""
    for value in (0, 2, -1, 10, 99999, "1", "", None, True, [1], {"major": 1}):
        yield case(f"v is {to_json(value)}", setting.json(v=value), NO_LABEL)
    compact = setting.plain("compact")
    for start in ("DL0:", "DL2:", "DL01:", "DL10:", "DL:", "DL1;", "DL1", "DL-1:", "L1:"):
        yield case(f"compact that begins {start}", start + compact[4:], NO_LABEL)


def syntax(setting: Setting) -> Iterator[Case]:
    """What other parsers let pass."""
    good = setting.json()
    for wrong, text in (
        ("single quotes", good.replace('"', "'")),
        ("names without quotes", good.replace('"v"', "v").replace('"product_id"', "product_id")),
        ("a comma after the last member", good[:-1] + ",}"),
        ("two commas", good.replace(",", ",,", 1)),
        ("a comma is missing", good.replace('","', '" "', 1)),
        ("a comment", good[:-1] + "/* label */}"),
        ("a line comment", good + " // label"),
        ("a hash comment", "# label\n" + good),
        ("something after the object", good + "x"),
        ("a second brace", good + "}"),
        ("a bracket for the brace", good[:-1] + "]"),
        ("an equals sign for the colon", good.replace(":", "=", 1)),
        ("an unknown escape", good.replace("SIM", "\\SIM")),
        ("half an escape", good.replace("SIM", "\\u00")),
        ("an escape in hexadecimal", good.replace("SIM", "\\x53IM")),
        ("a line break inside a text", good.replace("SIM-", "SIM\n")),
        ("a tab inside a text", good.replace("SIM-", "SIM\t")),
        ("typographic quotes", good.replace('"', "\u201d")),
        ("JSON with padding", f"callback({good})"),
        ("a guard against inclusion", ")]}',\n" + good),
        ("YAML", f"v: 1\nproduct_id: {setting.product_id}\ndevice_identifier: {setting.identifier}"),
        ("XML", f"<label v='1' product='{setting.product_id}' device='{setting.identifier}'/>"),
        ("a table", f"1,{setting.product_id},{setting.identifier}"),
        ("a form", f"v=1&product_id={setting.product_id}&device_identifier={setting.identifier}"),
        ("another language's repr", f"{{'v': 1, 'product_id': '{setting.product_id}', 'device_identifier': None}}"),
    ):
        yield case(wrong, text, NO_LABEL)


def duplicate_keys(setting: Setting) -> Iterator[Case]:
    """A name twice: which one counts depends on who reads it."""
    good, other = setting.json(), setting.no_product_id()
    for wrong, text in (
        ("product_id twice, the good one first", good[:-1] + f',"product_id":"{other}"}}'),
        ("product_id twice, the good one last", good.replace('{"v":1', f'{{"v":1,"product_id":"{other}"')),
        ("device_identifier twice", good[:-1] + ',"device_identifier":"SIM-000002"}'),
        ("device_identifier twice, the same both times", good[:-1] + f',"device_identifier":"{setting.identifier}"}}'),
        ("v twice", good[:-1] + ',"v":2}'),
        ("sig twice", good[:-1] + ',"sig":"AA","sig":"BB"}'),
        ("product_id again, with an escape", good[:-1] + f',"\\u0070roduct_id":"{other}"}}'),
        ("an unknown member twice", good[:-1] + ',"x":1,"x":2}'),
        ("twice inside an unknown member", good[:-1] + ',"x":{"a":1,"a":2}}'),
    ):
        yield case(wrong, text, NO_LABEL)
    link = setting.plain("link")
    for wrong, text in (
        ("link: p twice", link.replace("&d=", f"&p={other}&d=")),
        ("link: d twice", link + "&d=SIM-000002"),
        ("link: s twice", setting.signed("link") + "&s=AA"),
        ("link: d as a list", link.replace("&d=", "&d[]=")),
    ):
        yield case(wrong, text, NO_LABEL)


def nested(setting: Setting) -> Iterator[Case]:
    """A label inside something else, or something else inside a label."""
    good, members = setting.json(), setting.members()
    for wrong, text in (
        ("a label as a text", to_json(good)),
        ("a label as a text, twice", to_json(to_json(good))),
        ("a label in a member", to_json({"label": members})),
        ("a label in an array", to_json([members])),
        ("a request", to_json({"qr_data": good})),
        ("a label as the product id", setting.json(product_id=members)),
        ("arrays 33 deep", setting.json(x=...)[:-1] + ',"x":' + "[" * 32 + "]" * 32 + "}"),
        ("arrays 1,000 deep", "[" * 1000 + "]" * 1000),
        ("objects 500 deep", '{"v":' * 500 + "1" + "}" * 500),
        ("brackets that are never closed", "[" * 2000),
        ("braces that are never closed", '{"a":' * 600),
        ("a prototype as the label", to_json({"__proto__": members})),
        ("a type that some readers build", to_json({"$type": "Label", "value": members})),
    ):
        yield case(wrong, text, NO_LABEL)
    signed = setting.signed("json")
    yield case("a signed label in a member", '{"label":' + signed + "}", NO_LABEL)


def numbers(setting: Setting) -> Iterator[Case]:
    """Numbers that two readers read in two ways."""
    good = setting.json()
    for number in _NUMBERS:
        yield case(f"v is {number[:24]}", good.replace('"v":1', f'"v":{number}'), NO_LABEL)
    for number in ("NaN", "1e999", "9223372036854775808", "-9223372036854775809", "9" * 1000):
        yield case(f"an unknown member is {number[:24]}", good[:-1] + f',"x":{number}}}', NO_LABEL)
    yield case("the identifier is a number", good.replace(f'"{setting.identifier}"', "000001"), NO_LABEL)
    yield case("the identifier is a float", good.replace(f'"{setting.identifier}"', "1e6"), NO_LABEL)


def length(setting: Setting) -> Iterator[Case]:
    """Texts that are too short or too long."""
    for name in ("product_id", "device_identifier"):
        for wrong, value in (
            ("empty", ""),
            ("513 characters", "a" * 513),
            ("2,000 characters", "7" * 2000),
            ("600 letters of three bytes", "\u30e9" * 600),
        ):
            yield case(f"{name}: {wrong}", setting.json(**{name: value}), NO_LABEL)
    link = setting.plain("link")
    yield case("link: the identifier is empty", link.replace(setting.identifier, ""), NO_LABEL)
    yield case("link: the product is empty", f"https://{setting.host}/onboard?p=&d=SIM-000001", NO_LABEL)
    yield case("link: both are empty", f"https://{setting.host}/onboard?p=&d=", NO_LABEL)
    yield case("link: the identifier has 513 characters", link.replace(setting.identifier, "a" * 513), NO_LABEL)
    yield case("sig is empty", setting.json(sig=""), NO_LABEL)
    yield case("link: the signature is empty", link + "&s=", NO_LABEL)
