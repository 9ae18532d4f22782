"""Payload profiles: built in, out of other packages, and from the command line to a code that reads."""

from __future__ import annotations

import json
import stat
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.errors import InvalidQr
from simulator.labels.cli import labels_command
from simulator.labels.errors import LabelError
from simulator.labels.payload import PROFILES, open_payload, profiles, read_text
from simulator.labels.reading import read_label_files
from simulator.labels.symbol.encoding import Candidate, encode
from simulator.wire.qr import LabelText, parse_label
from simulator.wire.qr.keys import KINDS, LabelKey, LabelSigner, read_label_signer

PRODUCT = "0193b2f4-7e5c-7c3a-9b1e-2f6d4a8c0e11"
EXAMPLE = Path(__file__).parents[4] / "examples" / "label_profile"


def run(*arguments):
    return CliRunner().invoke(labels_command, [str(argument) for argument in arguments])


@pytest.fixture
def install(monkeypatch):
    """Put profiles of other packages where the tools look for them: name -> what the entry point names."""

    def put(**values):
        points = tuple(EntryPoint(name, value, profiles.GROUP) for name, value in values.items())
        monkeypatch.setattr(profiles, "_installed", lambda: points)

    return put


@pytest.fixture
def short(install, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLE / "src"))
    install(short="short_label.profile:ShortLabel")
    yield
    for name in [name for name in sys.modules if name.startswith("short_label")]:
        del sys.modules[name]


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
        (("--profile", "compact", "--prefix", "x" * 260), "a compact label takes 255"),
    ],
)
def test_wrong_use_is_one_line_with_the_fix(tmp_path, options, words):
    result = run("make", "--product-id", "p", "--out", tmp_path / "out", *options)
    assert result.exit_code == 2
    assert words in result.stderr.replace("\n", " ")
    assert not (tmp_path / "out").exists()


def test_the_sample_profile_of_another_package_makes_labels_and_reads_them(short, tmp_path):
    result = run("make", "--profile", "short", "--product-id", "DOOR-7", "--out", tmp_path, "--formats", "png")
    assert result.exit_code == 0, result.stderr
    [read] = read_label_files(tmp_path)
    assert read.text.startswith("SL*DOOR-7*SIM-000001*")
    assert (read.label.product_id, read.label.device_identifier, read.label.profile) == (
        "DOOR-7",
        "SIM-000001",
        "short",
    )
    refused = run("make", "--profile", "short", "--product-id", "small", "--out", tmp_path / "b")
    assert refused.exit_code == 2
    assert "takes capital letters" in refused.stderr


def test_the_sample_says_the_same_as_the_package_that_is_tested(short):
    import tomllib

    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    assert project["entry-points"] == {profiles.GROUP: {"short": "short_label.profile:ShortLabel"}}
    signer = LabelSigner("ed25519", bytes(32))
    assert open_payload("short").text("A", "B") != open_payload("short", signer=signer).text("A", "B")


class Exiting:
    def __init__(self):
        raise SystemExit(3)


class Nonsense:
    def write(self, label, signer):
        return {"KeyError": lambda: {}["x"], "nothing": lambda: "", "number": lambda: 7}[label.product_id]()

    def read(self, text):
        raise RuntimeError("broken")


def test_a_profile_that_cannot_be_loaded_is_one_clear_sentence(install, monkeypatch):
    monkeypatch.setitem(sys.modules, "made_up", sys.modules[__name__])
    install(gone="no_such_module_anywhere:Profile", half="pathlib:PurePath", exits="made_up:Exiting")
    for name, words in (
        ("gone", "could not be loaded: ModuleNotFoundError"),
        ("half", "lacks write or read"),
        ("exits", "could not be loaded: SystemExit"),
    ):
        with pytest.raises(LabelError, match=words) as caught:
            open_payload(name)
        assert "\n" not in str(caught.value)
    assert open_payload("json").text("p", "d")
    with pytest.raises(LabelError, match="there is json, link, compact, gone, half, exits"):
        open_payload("morse")


def test_a_profile_that_fails_at_its_work_is_one_clear_sentence(install, monkeypatch):
    monkeypatch.setitem(sys.modules, "made_up", sys.modules[__name__])
    install(nonsense="made_up:Nonsense")
    payload = open_payload("nonsense")
    for product_id, words in (("KeyError", "failed: KeyError"), ("nothing", "no text"), ("number", "no text")):
        with pytest.raises(LabelError, match=words):
            payload.text(product_id, "d")
    with pytest.raises(InvalidQr, match="not a device label"):
        read_text("whatever")


def test_what_the_strict_parser_reads_is_never_given_to_another_profile(install):
    install(gone="no_such_module_anywhere:Profile")
    text = open_payload("json").text("p", "d")
    assert read_text(text) == parse_label(text) == LabelText("p", "d")
