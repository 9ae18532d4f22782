"""Payload profiles, from the command line to a code that reads."""

from __future__ import annotations

import json
import stat

import pytest
from click.testing import CliRunner

from simulator.labels.cli import labels_command
from simulator.labels.errors import LabelError
from simulator.labels.payload import PROFILES, open_payload
from simulator.labels.reading import read_label_files
from simulator.labels.symbol.encoding import Candidate, encode
from simulator.wire.qr.keys import KINDS, LabelKey, LabelSigner, read_label_signer

PRODUCT = "0193b2f4-7e5c-7c3a-9b1e-2f6d4a8c0e11"


def run(*arguments):
    return CliRunner().invoke(labels_command, [str(argument) for argument in arguments])


@pytest.mark.parametrize("kind", [None, *KINDS])
def test_a_compact_label_is_the_smallest_symbol_and_in_alphanumeric_mode(kind):
    """Versions of the symbols at level M: what the profile is for."""
    signer = LabelSigner(kind, bytes(32)) if kind else None

    def version(name):
        payload = open_payload(name, host="onboard.example.com" if name == "link" else "", signer=signer)
        return encode(payload.text(PRODUCT, "SIM-000001"), Candidate(0, "M", None)).version

    text = open_payload("compact", signer=signer).text(PRODUCT, "SIM-000001")
    in_bytes = encode("a" * len(text), Candidate(0, "M", None)).version
    assert version("compact") < min(version("json"), version("link"), in_bytes)
    assert (version("json"), version("link"), version("compact")) == {
        None: (6, 6, 3),
        "hmac-sha256": (8, 7, 4),
        "ed25519": (10, 9, 6),
    }[kind]


def test_a_link_needs_a_host_and_makes_it_lower_case():
    assert "https://onboard.example.com/onboard?p=" in open_payload("link", host="OnBoard.Example.com").text("p", "d")
    for host in ("", "https://a.b", "a_b", "a b"):
        with pytest.raises(LabelError, match="--link-host"):
            open_payload("link", host=host)
    with pytest.raises(LabelError, match="has no host"):
        open_payload("compact", host="a.b")


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("kind", KINDS)
def test_from_a_new_key_to_a_signed_label_that_reads_and_holds(tmp_path, profile, kind):
    key_file = tmp_path / "door.key"
    made = run("keygen", "--out", key_file, "--kind", kind, "--json")
    assert made.exit_code == 0, made.stderr
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    host = ["--link-host", "onboard.example.com"] if profile == "link" else []
    out = tmp_path / "labels"
    options = ("make", "--product-id", PRODUCT, "--profile", profile, "--sign-key-file", key_file, *host)
    assert run(*options, "--out", out, "--formats", "png", "--size-mm", 40).exit_code == 0
    [read] = read_label_files(out)
    assert (read.label.product_id, read.label.profile) == (PRODUCT, profile)
    answer = json.loads(made.stdout)
    label_key = answer["label_key"] or key_file.read_text().strip()
    LabelKey(label_key).check(read.label)
    batch = json.loads((out / "manifest.json").read_text())["batch"]
    assert (batch["profile"], batch["signed_by"]) == (profile, answer["shown_as"])
    assert batch.get("link_host") == (host[1] if host else None)


def test_a_secret_is_not_printed_by_keygen_and_no_key_is_overwritten(tmp_path):
    path = tmp_path / "label.key"
    first = run("keygen", "--out", path, "--kind", "hmac-sha256")
    assert path.read_text().strip().partition(":")[2] not in first.output
    assert read_label_signer(path).key.shown in first.output
    again = run("keygen", "--out", path)
    assert again.exit_code == 2
    assert "left alone" in again.stderr
    public = run("keygen", "--out", tmp_path / "second.key")
    assert f"label_key  {read_label_signer(tmp_path / 'second.key').key.shown}" in public.stdout
    nowhere = run("keygen", "--out", tmp_path / "none" / "label.key")
    assert nowhere.exit_code == 2
    assert "cannot write" in nowhere.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--profile", "link"), "--link-host"),
        (("--profile", "morse"), "there is json, link, compact"),
        (("--link-host", "a.b"), "take link"),
        (("--sign-key-file", "/nowhere/label.key"), "cannot be read"),
        (("--profile", "compact", "--template", "x" * 260), "a compact label takes 255"),
    ],
)
def test_wrong_use_is_one_line_with_the_fix(tmp_path, options, words):
    result = run("make", "--product-id", "p", "--out", tmp_path / "out", *options)
    assert result.exit_code == 2
    assert words in result.stderr.replace("\n", " ")
    assert not (tmp_path / "out").exists()
