"""Tests for labels that are made: previews, sheets, archives."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import pytest

from agent.errors import InvalidSignature
from simulator.console.labels.making import make_order
from simulator.console.labels.orders import COUNT_MAX, LabelOrder, faults_of
from simulator.labels.errors import LabelError
from simulator.wire.qr import parse_label
from simulator.wire.qr.keys import LabelKey, LabelSigner

PRODUCT = "0193b2f4-7e5c-7c3a-9b1e-2f6d4a8c0e11"
HMAC = LabelSigner("hmac-sha256", b"k" * 32)
COMMAND = f"fleet-simulator labels make --product-id {PRODUCT} --count 1000000"
ED25519 = LabelSigner("ed25519", b"k" * 32)


def order(**members: Any) -> dict[str, Any]:
    return LabelOrder(product_id=PRODUCT, **members).model_dump()


def names(data: bytes) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(data)).namelist()


def test_a_preview_shows_the_first_labels_and_how_many_pages_the_sheet_has() -> None:
    made = make_order(order(count=100), None)

    assert made.shown["count"] == 100
    assert [label["device_identifier"] for label in made.shown["labels"]] == [f"SIM-{n:06d}" for n in range(1, 13)]
    assert all(label["svg"].startswith("<?xml") for label in made.shown["labels"])
    assert made.shown["sheet"]["pages"] == -(-100 // made.shown["sheet"]["per_page"])
    assert made.shown["signed_by"] is None


def test_a_zip_holds_every_format_and_the_manifest_and_equal_orders_give_equal_bytes() -> None:
    first = make_order(order(count=2, output="zip"), None)

    assert names(first.data) == [
        "SIM-000001.png",
        "SIM-000001.svg",
        "SIM-000002.png",
        "SIM-000002.svg",
        "manifest.csv",
        "manifest.json",
        "sheet.pdf",
    ]
    assert first.data == make_order(order(count=2, output="zip"), None).data


def test_a_sheet_is_a_document() -> None:
    made = make_order(order(count=3, output="sheet"), None)

    assert made.media_type == "application/pdf"
    assert made.data.startswith(b"%PDF-")


def test_labels_of_given_identifiers_are_made_in_their_order() -> None:
    made = make_order(order(identifiers=["B,1", 'A"2'], output="preview"), None)

    assert [label["device_identifier"] for label in made.shown["labels"]] == ["B,1", 'A"2']
    assert made.shown["count"] == 2


@pytest.mark.parametrize("profile", ["json", "link", "compact"])
def test_labels_of_a_product_with_a_secret_key_are_signed_by_it(profile: str) -> None:
    host = "onboard.example.com" if profile == "link" else ""
    made = make_order(order(profile=profile, link_host=host), HMAC.reveal_label_key())

    label = parse_label(made.shown["labels"][0]["text"])
    LabelKey(HMAC.reveal_label_key()).check(label)
    assert label.profile == profile
    assert made.shown["signed_by"] == HMAC.key.shown


def test_unsigned_labels_of_such_a_product_are_made_when_they_are_asked_for() -> None:
    made = make_order(order(signed=False), HMAC.reveal_label_key())

    with pytest.raises(InvalidSignature):
        LabelKey(HMAC.reveal_label_key()).check(parse_label(made.shown["labels"][0]["text"]))


@pytest.mark.parametrize(
    ("members", "label_key", "words"),
    [
        ({"signed": True}, None, "has no label_key to sign by: leave signed out, or give the product one"),
        ({}, ED25519.reveal_label_key(), "public key, so the service cannot sign: make its labels where the private"),
        ({"profile": "link"}, None, "give link_host, such as onboard.example.com"),
        ({"profile": "odd"}, None, "there is json, link, compact"),
        ({"size_mm": 3.0}, None, "size_mm 8.3 or dpi 1200 would fit"),
        ({"template": "SIM", "count": 2}, None, "gives every label the same identifier"),
        ({"identifiers": ["A", "\u0007"]}, None, r"^identifiers\[1\]: .*control characters"),
    ],
    ids=["no key", "public key", "no host", "profile", "size", "template", "bell"],
)
def test_what_cannot_be_made_says_which_member_to_change(
    members: dict[str, Any], label_key: str | None, words: str
) -> None:
    with pytest.raises(LabelError, match=words) as refused:
        make_order(order(**members), label_key)
    assert "--" not in str(refused.value)


@pytest.mark.parametrize(
    ("members", "fault"),
    [
        ({"count": 0}, ("count", "is 0; give 1 to 1,000")),
        ({"count": -3}, ("count", "is -3; give 1 to 1,000")),
        ({"count": 1_000_000}, ("count", f"is 1,000,000; give 1 to 1,000; for more run '{COMMAND}'")),
        ({"identifiers": []}, ("identifiers", "is empty; give one or more, or leave it out and give count")),
        ({"identifiers": ["A", "A"]}, ("identifiers", "names one twice; each device has an identifier of its own")),
        (
            {"size_mm": 1000.0, "dpi": 4800},
            ("size_mm", "and dpi make 188,976 dots on an edge; give less of one, up to 6,000"),
        ),
        ({"first_serial": -1}, ("first_serial", "is -1; give 0 or more, up to 15 digits")),
    ],
)
def test_a_body_that_asks_too_much_or_nothing_is_refused(members: dict[str, Any], fault: tuple[str, str]) -> None:
    assert faults_of(LabelOrder(product_id=PRODUCT, **members)) == [fault]


def test_as_many_labels_as_may_be_are_no_fault() -> None:
    assert faults_of(LabelOrder(product_id=PRODUCT, count=COUNT_MAX)) == []
