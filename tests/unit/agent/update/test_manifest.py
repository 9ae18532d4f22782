"""What a manifest may say, and which releases a device takes."""

from __future__ import annotations

import json

import pytest

from agent.update.release import Program, ReleaseRefused, check_suits, parse_manifest, version_key

GOOD = {
    "kind": "device-agent release",
    "format": 1,
    "version": "2.0.0",
    "architecture": "amd64",
    "store_schema": 4,
    "downgrade": False,
    "size": 10,
    "sha256": "a" * 64,
    "unpacked_bytes": 3,
}
RUNNING = Program("1.5.0", "amd64", 4)


def refusal(running: Program = RUNNING, **changes) -> str:
    members = {**GOOD, **changes}
    with pytest.raises(ReleaseRefused) as caught:
        check_suits(parse_manifest(json.dumps(members).encode()), running)
    # One line that says what to do.
    assert ":" in caught.value.message
    assert "\n" not in caught.value.message
    return caught.value.code


def test_a_good_one_is_taken():
    check_suits(parse_manifest(json.dumps(GOOD).encode()), RUNNING)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"format": 2}, "unknown_format"),
        ({"architecture": "arm64"}, "wrong_architecture"),
        ({"version": "1.4"}, "downgrade"),
        ({"store_schema": 5}, "other_schema"),
        ({"store_schema": 3}, "other_schema"),
        ({"kind": "toaster"}, "malformed"),
        ({"version": "1"}, "malformed"),
        ({"version": "2.0-rc1"}, "malformed"),
        ({"version": 2}, "malformed"),
        ({"downgrade": 1}, "malformed"),
        ({"extra": 1}, "malformed"),
        ({"store_schema": True}, "malformed"),
        ({"size": -1}, "malformed"),
        ({"size": 2**40}, "malformed"),
        ({"unpacked_bytes": 2**31}, "malformed"),
        ({"sha256": "A" * 64}, "malformed"),
    ],
)
def test_each_reason_to_refuse_has_its_code(changes, code):
    assert refusal(**changes) == code


def test_a_downgrade_needs_the_makers_word():
    check_suits(parse_manifest(json.dumps({**GOOD, "version": "1.4", "downgrade": True}).encode()), RUNNING)


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"kind": "x"}'])
def test_what_is_no_manifest_is_refused(data):
    with pytest.raises(ReleaseRefused):
        parse_manifest(data)


def test_versions_are_compared_as_numbers():
    assert version_key("1.10") > version_key("1.9.9") > version_key("1.9") == version_key("1.9.0.0")
