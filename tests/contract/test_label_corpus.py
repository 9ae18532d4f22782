"""The whole label corpus against the service, over a real socket: every answer as documented."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from agent.wire.auth import KeyPair
from simulator.labels.cli import labels_command
from simulator.labels.corpus.case import Setting
from simulator.labels.corpus.collection import collect
from simulator.labels.corpus.report import sentences
from simulator.labels.corpus.run import NAMES
from simulator.labels.corpus.sending import RetryPolicy, send_all
from simulator.wire.client import ServiceClient
from simulator.wire.qr.keys import KINDS, LabelSigner
from tests.service_running import running


@pytest.fixture
def bench():
    with running() as bench:
        yield bench


def run(bench, tmp_path, *options, secret=None, base_url=None):
    secret_file = tmp_path / "secret.key"
    secret_file.write_text(secret or bench.service.secret_key.reveal())
    keys = ("--api-key", bench.service.api_key, "--secret-key-file", str(secret_file))
    return CliRunner().invoke(
        labels_command, ["corpus", "--against", base_url or bench.service.base_url, *keys, *map(str, options)]
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_answer_is_as_documented(bench, kind):
    signer = LabelSigner.make(kind)
    product_id, signed_id = bench.product(), bench.product(label_key=signer.reveal_label_key())
    entries = collect(Setting(product_id, signed_id, signer, seed=KINDS.index(kind)))
    keys = KeyPair(bench.service.api_key, bench.service.secret_key)
    with ServiceClient(bench.service.base_url, keys) as client:
        asked = send_all(client.connection, entries, RetryPolicy(lambda _: None))
    assert sentences(asked, any_refusal=False) == []
    assert len(asked) > 700
    assert bench.http.get("/devices").json()["data"] == []


def test_the_command_makes_its_products_asks_and_takes_them_away_again(bench, tmp_path, monkeypatch):
    monkeypatch.setattr("simulator.labels.corpus.run.collect", lambda setting: collect(setting)[::9])
    seen = bench.product()
    result = run(bench, tmp_path, "--out", tmp_path / "corpus", "--json")
    assert result.exit_code == 0, result.stderr
    answers = json.loads(result.stdout)["answers"]
    assert (answers["passed"], answers["others"]) == (True, [])
    assert [product["product_id"] for product in bench.http.get("/products").json()["data"]] == [seen]
    made_for = json.loads((tmp_path / "corpus" / "corpus.json").read_text())["made_for"]
    assert made_for["product_id"] != made_for["signed_product_id"]


def test_a_server_that_checks_no_signature_does_not_pass(bench, tmp_path, monkeypatch):
    """The test of the test: a second product without a key, which takes what it must not."""
    monkeypatch.setattr("simulator.labels.corpus.run.collect", lambda setting: collect(setting)[::3])
    result = run(bench, tmp_path, "--product-id", bench.product(), "--signed-product-id", bench.product())
    assert result.exit_code == 1
    assert "answers were not as expected" in result.stdout
    assert "taken: expected 400 invalid_signature, answered 200" in result.stderr
    assert "more; --json lists all" in result.stderr
    assert run(bench, tmp_path, "--product-id", "no-such-id", "--signed-product-id", "nor-this").exit_code == 1


def test_refused_keys_and_nobody_there_are_told_apart(bench, tmp_path):
    refused = run(bench, tmp_path, secret="msk_wrong")
    assert refused.exit_code == 2
    assert "check the keys" in refused.stderr
    gone = run(bench, tmp_path, base_url="http://127.0.0.1:9")
    assert gone.exit_code == 5
    assert NAMES[0] not in gone.output
