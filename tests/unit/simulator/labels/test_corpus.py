"""The corpus of payloads: what is in it, that it is the same each time, and how answers to it are judged."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import replace
from pathlib import Path

import httpx
import jsonschema
import pytest
from click.testing import CliRunner

from agent.errors import (
    Forbidden,
    InvalidQr,
    InvalidSignature,
    RateLimited,
    Refused,
    ServerFault,
    TransportError,
    Unauthorized,
    UnexpectedAnswer,
)
from agent.wire.answers import Answer
from simulator.labels.cli import labels_command
from simulator.labels.corpus import ScanOutcome, collect, write_corpus
from simulator.labels.corpus.case import QR, Setting, case
from simulator.labels.corpus.classes import other_texts
from simulator.labels.corpus.drawing import draw_case
from simulator.labels.corpus.report import as_json, sentences
from simulator.labels.corpus.run import made_up_setting, made_up_signer
from simulator.labels.corpus.sending import RetryPolicy, send_all
from simulator.labels.errors import LabelError, LabelsExist
from simulator.labels.symbol.decoders import read_codes
from simulator.labels.symbol.pictures import load_picture
from simulator.wire.qr import parse_label
from simulator.wire.qr.keys import LabelSigner

SIGNER = made_up_signer(0)
SETTING = made_up_setting(0, SIGNER, "onboard.example.com")
ENTRIES = collect(SETTING)
PARSER_MOST_S = 0.005


def run(*arguments):
    return CliRunner().invoke(labels_command, ["corpus", *(str(argument) for argument in arguments)])


def test_there_are_many_payloads_in_many_classes_and_no_two_are_the_same():
    invalid = [entry for entry in ENTRIES if not entry.of.valid]
    assert len(invalid) >= 250
    assert len({entry.of.name for entry in invalid}) >= 20
    assert len(ENTRIES) - len(invalid) >= 25
    assert len({entry.id for entry in ENTRIES}) == len(ENTRIES)
    assert len({(entry.case.request, entry.case.symbology) for entry in ENTRIES}) == len(ENTRIES)
    assert all(entry.of.about.endswith(".") and entry.case.wrong for entry in ENTRIES)


def test_what_is_called_good_is_expected_to_be_taken_and_nothing_else_is():
    for entry in ENTRIES:
        expected = entry.case.expected
        assert entry.of.valid == (expected is not None and expected.status == 200)
        assert entry.of.valid == (entry.case.shows is not None)
        assert expected is None or bool(expected.error) != entry.of.valid
        assert expected is not None or entry.case.symbology != QR


def test_the_same_options_make_the_same_corpus_and_another_seed_another():
    assert collect(SETTING) == ENTRIES
    other = collect(replace(SETTING, seed=1))
    assert [entry.id for entry in other] == [entry.id for entry in ENTRIES]
    assert other != ENTRIES


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "setting",
    [
        Setting("DOOR-7", "DOOR-8", SIGNER, "a.example"),
        Setting("7777", "8888", LabelSigner("hmac-sha256", bytes(20)), "qr.example.org:8443"),
        Setting("Türsteuerung 1", "Türsteuerung 2", SIGNER),
    ],
    ids=lambda setting: setting.product_id,
)
def test_a_corpus_is_right_for_products_of_any_name(setting, seed):
    """Judged by the parser and the key, in the order in which the service asks them."""
    wrong = [
        (entry.id, entry.case.wrong, answer)
        for entry in collect(replace(setting, seed=seed))
        if entry.case.body is None and (answer := answer_to(entry, setting)) not in {None, entry.case.expected}
    ]
    assert not wrong


def answer_to(entry, setting):
    """What the service would answer; None where its limits or its body parser come first."""
    if entry.case.expected is None or entry.case.expected.status == 413 or "\0" in entry.case.text:
        return None
    expected = type(entry.case.expected)
    try:
        label = parse_label(entry.case.text)
        if label.product_id not in {setting.product_id, setting.signed_product_id}:
            return expected(404, "product_not_found")
        if label.product_id == setting.signed_product_id:
            setting.signer.key.check(label)
    except InvalidQr:
        return expected(400, "invalid_qr")
    except InvalidSignature:
        return expected(400, "invalid_signature")
    return expected(200)


def test_the_parser_raises_its_own_error_and_takes_no_more_than_five_milliseconds():
    """The best of some tries of each: a machine that is busy with something else must not fail it."""
    for entry in ENTRIES:
        best_s = 1.0
        for _ in range(20):
            begun_s = time.process_time()
            answer_to(entry, SETTING)
            best_s = min(best_s, time.process_time() - begun_s)
            if best_s < PARSER_MOST_S:
                break
        assert best_s < PARSER_MOST_S, entry.id


def test_a_folder_has_a_file_and_mostly_a_picture_of_each_and_fits_its_schema(tmp_path, monkeypatch):
    """A third of the corpus, and all of its other symbologies; each QR code is read when it is drawn."""
    some = [e for n, e in enumerate(ENTRIES) if n % 3 == 0 or e.case.symbology != QR]
    monkeypatch.setattr("simulator.labels.corpus.run.collect", lambda setting: tuple(some))
    result = run("--out", tmp_path / "corpus", "--json")
    assert result.exit_code == 0, result.stderr
    summary = json.loads(result.stdout)
    document = json.loads((tmp_path / "corpus" / "corpus.json").read_text("ascii"))
    jsonschema.Draft202012Validator(json.loads((tmp_path / "corpus" / "corpus.schema.json").read_text())).validate(
        document
    )
    rows = document["entries"]
    assert len(rows) == summary["payloads"] == len(some)
    assert sum(not row["valid"] for row in rows) == summary["invalid"]
    assert summary["pictures"] == sum(row["picture"] is not None for row in rows) > len(rows) - 20
    for number, row in enumerate(rows):
        payload = base64.b64decode(row["payload_base64"])
        assert (tmp_path / "corpus" / row["text"]).read_bytes() == payload
        if row["picture"] and (number % 3 == 0 or row["symbology"] != QR) and row["decoders_find"] is not None:
            read = read_codes(load_picture(tmp_path / "corpus" / row["picture"]))
            assert read == ((payload,) if row["decoders_find"] else ())
    assert document["made_for"]["label_key"] == SIGNER.reveal_label_key()


def test_equal_options_write_equal_bytes(tmp_path):
    some = ENTRIES[::25]
    for name in ("a", "b"):
        write_corpus(some, SETTING, tmp_path / name, label_key="k")
    first = {path.relative_to(tmp_path / "a"): path.read_bytes() for path in (tmp_path / "a").rglob("*.*")}
    assert first == {path.relative_to(tmp_path / "b"): path.read_bytes() for path in (tmp_path / "b").rglob("*.*")}


def test_another_corpus_is_overwritten_only_when_told_and_nothing_else_ever(tmp_path):
    some = ENTRIES[:2]
    write_corpus(some, SETTING, tmp_path, label_key="k")
    with pytest.raises(LabelsExist, match="--replace"):
        write_corpus(some, SETTING, tmp_path, label_key="k")
    write_corpus(some[:1], SETTING, tmp_path, label_key="k", replace=True)
    assert [path.name for path in (tmp_path / "texts").iterdir()] == [f"{some[0].id}.txt"]
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(LabelsExist, match="something else"):
        write_corpus(some, SETTING, tmp_path, label_key="k", replace=True)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    with pytest.raises(LabelError, match="cannot write"):
        write_corpus(some, SETTING, tmp_path / "notes.txt" / "below", label_key="k")


def test_a_secret_of_a_real_product_is_not_written_into_the_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("simulator.labels.corpus.run.collect", lambda setting: collect(setting)[:5])
    signer = LabelSigner.make("hmac-sha256")
    signer.write(tmp_path / "door.key")
    options = ("--product-id", "DOOR-7", "--signed-product-id", "DOOR-8", "--sign-key-file", tmp_path / "door.key")
    assert run("--out", tmp_path / "corpus", *options).exit_code == 0
    text = (tmp_path / "corpus" / "corpus.json").read_text()
    assert signer.key.shown in text
    assert signer.reveal_label_key().partition(":")[2] not in text


def test_what_a_symbol_does_not_hold_has_no_picture():
    for each in other_texts.oversized(SETTING):
        assert draw_case(each) is None
    assert draw_case(case("too long for level L", "a" * 2954, None)) is None
    assert draw_case(case("only for level L", "a" * 2900, None)) is not None
    assert draw_case(case("too long for a bar code", "a" * 300, None, symbology="Code128")) is None


# --- judging ----------------------------------------------------------------------------------------------------


class Server:
    """Answers each payload with what it is given: a status and body, or an error to raise."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.bodies = []

    def request(self, method, path, *, body=None):
        self.bodies.append((method, path, body))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return Answer(200, httpx.Headers(), json.dumps(answer).encode(), "test")


def entry_of(name):
    return next(entry for entry in ENTRIES if entry.of.name == name)


BAD, GOOD = entry_of("schema"), entry_of("good_label")
PRODUCT, IDENTIFIER = GOOD.case.shows


@pytest.mark.parametrize(
    ("entry", "answer", "outcome"),
    [
        (BAD, Refused(400, "invalid_qr"), ScanOutcome.AS_EXPECTED),
        (BAD, Refused(422, "unprocessable"), ScanOutcome.REFUSED_OTHERWISE),
        (BAD, Refused(400, "invalid_signature"), ScanOutcome.REFUSED_OTHERWISE),
        (BAD, {"product": {}}, ScanOutcome.TAKEN),
        (BAD, ServerFault(500, "internal_error"), ScanOutcome.FAULT),
        (BAD, UnexpectedAnswer("a page", 302), ScanOutcome.FAULT),
        (GOOD, {"product": {"product_id": PRODUCT}, "device_identifier": IDENTIFIER}, ScanOutcome.AS_EXPECTED),
        (GOOD, {"productId": PRODUCT, "name": "Door"}, ScanOutcome.AS_EXPECTED),
        (GOOD, {"name": "a plain server tells the product alone"}, ScanOutcome.AS_EXPECTED),
        (GOOD, {"product": {"product_id": "another"}}, ScanOutcome.SHOWN_WRONG),
        (GOOD, {"product": {}, "device_identifier": "SIM-2"}, ScanOutcome.SHOWN_WRONG),
        (GOOD, ["a list"], ScanOutcome.FAULT),
        (GOOD, Refused(400, "invalid_qr"), ScanOutcome.REFUSED),
        (GOOD, Refused(404, "product_not_found"), ScanOutcome.REFUSED),
    ],
)
def test_an_answer_is_judged(entry, answer, outcome):
    server = Server(answer)
    [asked] = send_all(server, [entry], RetryPolicy(lambda _: None))
    assert asked.outcome is outcome
    assert server.bodies == [("POST", "/onboarding/scan-qr", entry.case.request)]
    assert asked.good(any_refusal=False) == (outcome is ScanOutcome.AS_EXPECTED)
    assert asked.good(any_refusal=True) == (outcome in {ScanOutcome.AS_EXPECTED, ScanOutcome.REFUSED_OTHERWISE})
    assert as_json([asked], any_refusal=False)["passed"] == (outcome is ScanOutcome.AS_EXPECTED)
    assert len(sentences([asked], any_refusal=False)) == (outcome is not ScanOutcome.AS_EXPECTED)


def test_silence_at_the_beginning_ends_the_run_and_later_it_is_an_answer_missing():
    gone = TransportError("refused")
    with pytest.raises(TransportError):
        send_all(Server(gone), [BAD], RetryPolicy(lambda _: None))
    asked = send_all(Server(Refused(400, "invalid_qr"), gone), [BAD, BAD], RetryPolicy(lambda _: None))
    assert [each.outcome for each in asked] == [ScanOutcome.AS_EXPECTED, ScanOutcome.NO_ANSWER]
    assert "answered no answer (refused)" in sentences(asked, any_refusal=True)[0]


@pytest.mark.parametrize("error", [Unauthorized(401, "invalid_credentials"), Forbidden(403, "insufficient_scope")])
def test_refused_keys_end_the_run(error):
    with pytest.raises(type(error)):
        send_all(Server(error), [BAD], RetryPolicy(lambda _: None))


def test_a_quota_is_waited_for_and_not_for_ever():
    slept: list[float] = []
    limit = RateLimited(429, "rate_limit_exceeded", retry_after_s=10)
    [asked] = send_all(Server(limit, limit, Refused(400, "invalid_qr")), [BAD], RetryPolicy(slept.append, 30))
    assert (asked.outcome, slept) == (ScanOutcome.AS_EXPECTED, [10, 10])
    [asked] = send_all(Server(limit), [BAD], RetryPolicy(slept.append, 30))
    assert (asked.outcome, len(slept)) == (ScanOutcome.NO_ANSWER, 5)


def test_what_no_scanner_hands_over_is_not_sent():
    entry = next(entry for entry in ENTRIES if entry.case.expected is None)
    server = Server({})
    [asked] = send_all(server, [entry], RetryPolicy(lambda _: None))
    assert (asked.outcome, server.bodies) == (ScanOutcome.NOT_SENT, [])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "nothing to do"),
        (("--against", "http://127.0.0.1:9"), "needs --api-key"),
        (("--out", "x", "--product-id", "p-12"), "go together"),
        (("--out", "x", "--product-id", "p-12", "--signed-product-id", "p-12"), "are the same"),
        (("--out", "x", "--product-id", "p", "--signed-product-id", "p-12"), "too short"),
        (("--out", "x", "--link-host", "https://a.b"), "--link-host"),
        (("--out", "x", "--link-host", "localhost"), "no dot"),
        (("--out", "x", "--sign-key-file", "/nowhere/key"), "cannot be read"),
        (("--against", "http://127.0.0.1:9", "--api-key", "mk_a", "--secret-key-file", "/nowhere"), "cannot be read"),
    ],
)
def test_wrong_use_is_one_line_with_the_fix(options, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*options)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Traceback" not in result.output
    assert not list(tmp_path.iterdir())


def test_the_page_tells_the_numbers_of_this_corpus():
    page = (Path(__file__).parents[4] / "docs" / "label-corpus.md").read_text(encoding="utf-8")
    invalid = [entry for entry in ENTRIES if not entry.of.valid]
    classes = {entry.of.name for entry in invalid}
    told = f"{len(invalid)} payloads that a server must refuse, in {len(classes)} classes"
    assert page.split("\n")[2].startswith(f"{told}, and {len(ENTRIES) - len(invalid)} ")
    families = {name.removeprefix("injection") for name in classes if name.startswith("injection")}
    rest = {name for name in {entry.of.name for entry in ENTRIES} if not name.startswith("injection")}
    assert not {name for name in families | rest if f"{name}`" not in page}
