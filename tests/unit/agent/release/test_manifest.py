"""What a manifest may say, and which releases a device takes."""

from __future__ import annotations

import json

import pytest

from agent.release.manifest import Program, ReleaseRefused, judge, parse_manifest, version_key

SHA = "a" * 64
GOOD = {
    "kind": "device-agent release",
    "format": 1,
    "product": "device-agent",
    "version": "2.0.0",
    "minimum_version": "1.2",
    "architecture": "amd64",
    "downgrade": False,
    "schema": {"store": 4, "store_readable_by": 4},
    "content": {"size": 10, "sha256": SHA},
    "files": {"common/agent/__init__.py": {"size": 3, "sha256": SHA}},
}
RUNNING = Program("1.5.0", "amd64", 4, 4)


def refusal(running: Program = RUNNING, **changes) -> str:
    members = {**GOOD, **changes}
    with pytest.raises(ReleaseRefused) as caught:
        judge(parse_manifest(json.dumps(members).encode()), running)
    # One line that says what to do.
    assert ":" in caught.value.message
    assert "\n" not in caught.value.message
    return caught.value.code


def test_a_good_one_is_taken():
    judge(parse_manifest(json.dumps(GOOD).encode()), RUNNING)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"format": 2}, "unknown_format"),
        ({"product": "toaster"}, "other_product"),
        ({"architecture": "arm64"}, "wrong_architecture"),
        ({"minimum_version": "1.6"}, "too_old"),
        ({"version": "1.4"}, "downgrade"),
        ({"schema": {"store": 5, "store_readable_by": 5}}, "newer_schema"),
        ({"schema": {"store": 3, "store_readable_by": 3}}, "older_schema"),
    ],
)
def test_each_reason_to_refuse_has_its_code(changes, code):
    if code == "other_product":
        with pytest.raises(ReleaseRefused, match=code):
            parse_manifest(json.dumps({**GOOD, **changes}).encode())
    else:
        assert refusal(**changes) == code


def test_a_downgrade_needs_the_makers_word_and_an_additive_schema_is_none():
    judge(parse_manifest(json.dumps({**GOOD, "version": "1.4", "downgrade": True}).encode()), RUNNING)
    judge(parse_manifest(json.dumps({**GOOD, "schema": {"store": 6, "store_readable_by": 4}}).encode()), RUNNING)


@pytest.mark.parametrize(
    "changes",
    [
        {"version": "1"},
        {"version": "2.0-rc1"},
        {"version": 2},
        {"downgrade": 1},
        {"extra": 1},
        {"schema": {"store": 4}},
        {"schema": {"store": True, "store_readable_by": 1}},
        {"content": {"size": -1, "sha256": SHA}},
        {"content": {"size": 2**40, "sha256": SHA}},
        {"content": {"size": 1, "sha256": "A" * 64}},
        {"files": {}},
        {"files": []},
        *({"files": {path: {"size": 3, "sha256": SHA}}} for path in ("/etc/passwd", "../x", "a/../../x", "a//b", "")),
        *({"files": {path: {"size": 3, "sha256": SHA}}} for path in ("a/./b", "a/__pycache__/b.pyc", "a\nb", "a\\b")),
        {"files": {"a": {"size": 2**30, "sha256": SHA}, "b": {"size": 2**30, "sha256": SHA}}},
    ],
)
def test_what_is_malformed_is_refused(changes):
    with pytest.raises(ReleaseRefused) as caught:
        parse_manifest(json.dumps({**GOOD, **changes}).encode())
    assert caught.value.code == "malformed"


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"kind": "x"}'])
def test_what_is_no_manifest_is_refused(data):
    with pytest.raises(ReleaseRefused):
        parse_manifest(data)


def test_versions_are_compared_as_numbers():
    assert version_key("1.10") > version_key("1.9.9") > version_key("1.9") == version_key("1.9.0.0")
