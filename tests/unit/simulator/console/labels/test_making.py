"""Tests for labels that are made: previews, sheets, archives, and such that must not pass."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from typing import Any

import pytest

from agent.errors import InvalidSignature
from simulator.console.labels.making import make_order
from simulator.console.labels.negatives import make_negatives
from simulator.console.labels.orders import COUNT_MAX, LabelOrder, faults_of
from simulator.labels.errors import LabelError
from simulator.labels.symbol.decoders import panel
from simulator.labels.symbol.pictures import load_picture
from simulator.wire.qr import parse_label
from simulator.wire.qr.keys import LabelKey, LabelSigner

READERS = panel(["zxing"])
PRODUCT = "0193b2f4-7e5c-7c3a-9b1e-2f6d4a8c0e11"
HMAC = LabelSigner("hmac-sha256", b"k" * 32)
COMMAND = f"fleet-simulator labels make --product-id {PRODUCT} --count 1000000"
ED25519 = LabelSigner("ed25519", b"k" * 32)


def order(**members: Any) -> dict[str, Any]:
    return LabelOrder(product_id=PRODUCT, **members).model_dump()


def names(data: bytes) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(data)).namelist()


def test_a_preview_shows_the_first_labels_and_how_many_pages_the_sheet_has() -> None:
    made = make_order(order(count=100), None, READERS)

    assert made.shown["count"] == 100
    assert [label["device_identifier"] for label in made.shown["labels"]] == [f"SIM-{n:06d}" for n in range(1, 13)]
    assert all(label["svg"].startswith("<?xml") for label in made.shown["labels"])
    assert made.shown["sheet"]["pages"] == -(-100 // made.shown["sheet"]["per_page"])
    assert made.shown["signed_by"] is None


def test_a_zip_holds_every_format_and_the_manifest_and_equal_orders_give_equal_bytes() -> None:
    first = make_order(order(count=2, output="zip"), None, READERS)

    assert names(first.data) == [
        "SIM-000001.png",
        "SIM-000001.svg",
        "SIM-000002.png",
        "SIM-000002.svg",
        "manifest.csv",
        "manifest.json",
        "sheet.pdf",
    ]
    assert first.data == make_order(order(count=2, output="zip"), None, READERS).data


def test_a_sheet_is_a_document() -> None:
    made = make_order(order(count=3, output="sheet", stock="L7160"), None, READERS)

    assert made.media_type == "application/pdf"
    assert made.data.startswith(b"%PDF-")


def test_labels_of_given_identifiers_are_made_in_their_order() -> None:
    made = make_order(order(identifiers=["B,1", 'A"2'], output="preview"), None, READERS)

    assert [label["device_identifier"] for label in made.shown["labels"]] == ["B,1", 'A"2']
    assert made.shown["count"] == 2


@pytest.mark.parametrize("profile", ["json", "link", "compact"])
def test_labels_of_a_product_with_a_secret_key_are_signed_by_it(profile: str) -> None:
    host = "onboard.example.com" if profile == "link" else ""
    made = make_order(order(profile=profile, link_host=host), HMAC.reveal_label_key(), READERS)

    label = parse_label(made.shown["labels"][0]["text"])
    LabelKey(HMAC.reveal_label_key()).check(label)
    assert label.profile == profile
    assert made.shown["signed_by"] == HMAC.key.shown


def test_unsigned_labels_of_such_a_product_are_made_when_they_are_asked_for() -> None:
    made = make_order(order(signed=False), HMAC.reveal_label_key(), READERS)

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
        ({"stock": "L0000"}, None, "L0000"),
        ({"template": "SIM", "count": 2}, None, "gives every label the same identifier"),
        ({"identifiers": ["A", "\u0007"]}, None, r"^identifiers\[1\]: .*control characters"),
    ],
    ids=["no key", "public key", "no host", "profile", "size", "stock", "template", "bell"],
)
def test_what_cannot_be_made_says_which_member_to_change(
    members: dict[str, Any], label_key: str | None, words: str
) -> None:
    with pytest.raises(LabelError, match=words) as refused:
        make_order(order(**members), label_key, READERS)
    assert "--" not in str(refused.value)


@pytest.mark.parametrize(
    ("members", "fault"),
    [
        ({"count": 0}, ("count", "is 0; give 1 to 1,000")),
        ({"count": -3}, ("count", "is -3; give 1 to 1,000")),
        ({"count": 1_000_000}, ("count", f"is 1,000,000; give 1 to 1,000; for more run '{COMMAND}'")),
        (
            {"count": 6, "negatives": "damage", "output": "zip"},
            ("count", "is 6; give 1 to 5; for more run 'fleet-simulator labels damage'"),
        ),
        ({"identifiers": []}, ("identifiers", "is empty; give one or more, or leave it out and give count")),
        ({"identifiers": ["A", "A"]}, ("identifiers", "names one twice; each device has an identifier of its own")),
        (
            {"size_mm": 1000.0, "dpi": 4800},
            ("size_mm", "and dpi make 188,976 dots on an edge; give less of one, up to 6,000"),
        ),
        ({"first_serial": -1}, ("first_serial", "is -1; give 0 or more, up to 15 digits")),
        (
            {"negatives": "payloads", "output": "sheet"},
            ("output", "must be preview or zip where negatives are asked for"),
        ),
    ],
)
def test_a_body_that_asks_too_much_or_nothing_is_refused(members: dict[str, Any], fault: tuple[str, str]) -> None:
    assert faults_of(LabelOrder(product_id=PRODUCT, **members)) == [fault]


def test_as_many_labels_as_may_be_are_no_fault() -> None:
    assert faults_of(LabelOrder(product_id=PRODUCT, count=COUNT_MAX)) == []


def test_a_preview_of_payloads_shows_one_of_each_class_with_the_answer_that_is_due() -> None:
    made = make_negatives(order(negatives="payloads"), None, READERS)

    classes = [entry["class"] for entry in made.shown["entries"]]
    assert len(classes) == len(set(classes)) > 20
    assert {"schema", "syntax", "link_form", "injection_sql"} <= set(classes)
    assert all(entry["expected"] is None or entry["expected"]["status"] >= 400 for entry in made.shown["entries"])
    assert all(load_picture(base64.b64decode(entry["png_base64"])) for entry in made.shown["entries"])


def test_payloads_are_about_the_product_and_about_no_made_up_one() -> None:
    made = make_negatives(order(negatives="payloads", output="zip"), None, READERS)
    corpus = json.loads(zipfile.ZipFile(io.BytesIO(made.data)).read("corpus.json"))

    texts = [str(entry["qr_data"]) for entry in corpus["entries"]]
    assert any(PRODUCT in text for text in texts)
    assert not any("0193b2f4-0000-7000-8000" in text for text in texts)


def test_the_corpus_of_a_product_that_signs_has_signatures_and_not_its_key() -> None:
    made = make_negatives(order(negatives="payloads", output="zip"), HMAC.reveal_label_key(), READERS)
    archive = zipfile.ZipFile(io.BytesIO(made.data))
    corpus = json.loads(archive.read("corpus.json"))

    assert {"signature"} <= {entry["class"] for entry in corpus["entries"]}
    secret = HMAC.reveal_label_key().partition(":")[2].encode()
    assert not any(secret in archive.read(name) for name in archive.namelist())


def test_damaged_labels_come_with_what_each_decoder_says() -> None:
    made = make_negatives(order(negatives="damage"), None, READERS)

    entries = made.shown["entries"]
    assert {entry["kind"] for entry in entries} > {"blur", "glare", "scratches"}
    assert {entry["verdicts"]["zxing"] for entry in entries} >= {"read", "not_found"}
    for entry in entries:
        picture = load_picture(base64.b64decode(entry["png_base64"]))
        is_read = bool(READERS[0].read(picture))
        assert is_read == (entry["verdicts"]["zxing"] != "not_found")
