"""Payloads that must be refused, and neighbours that must be taken; scan-qr registers nothing."""

from __future__ import annotations

import json

import pytest

from agent.errors import ErrorAnswer, RateLimited, ServerFault, Unauthorized
from simulator.labels.corpus import UNKNOWN_PRODUCT, Entry, Setting, made_up_signer, read_corpus
from simulator.onboarding.cases import Label
from simulator.onboarding.suite.settings import Products, Settings
from simulator.wire import paths
from simulator.wire.qr.keys import LabelSigner

_IDS = [entry.id for entry in read_corpus(Setting(UNKNOWN_PRODUCT, UNKNOWN_PRODUCT, made_up_signer()))]


@pytest.fixture(scope="session", name="corpus")
def _corpus(products: Products, signer: LabelSigner) -> dict[str, Entry]:
    signed = products.make("signed product", signer.reveal_label_key())
    return {entry.id: entry for entry in read_corpus(Setting(products.of(Label.FRESH), signed, signer))}


@pytest.mark.parametrize("name", _IDS)
def test_payload(name: str, settings: Settings, corpus: dict[str, Entry]) -> None:
    """A bad payload is refused by a 4xx, a good one is taken and shows the label's own product and identifier."""
    entry = corpus[name]
    connection = settings.client
    try:
        answer = settings.patience.call(lambda: connection.request("POST", paths.SCAN_QR, body=entry.body))
    except ErrorAnswer as error:
        if entry.is_good or isinstance(error, (ServerFault, RateLimited, Unauthorized)):
            pytest.fail(f"{entry.about}: answered {error.status} {error.error}", pytrace=False)
        if settings.is_strict and (error.status, error.error) != (entry.status, entry.error):
            wanted = f"{entry.status} {entry.error}"
            pytest.fail(f"{entry.about}: answered {error.status} {error.error}, expected {wanted}", pytrace=False)
        return
    if not entry.is_good:
        pytest.fail(f"{entry.about}: the server takes it for a good label ({answer.status})", pytrace=False)
    shown = json.loads(answer.content)
    product = shown.get("product") if isinstance(shown.get("product"), dict) else shown
    found = product.get("product_id"), shown.get("device_identifier")
    for is_found, wanted in zip(found, entry.shows or (), strict=False):
        if is_found is not None and is_found != wanted:
            pytest.fail(f"{entry.about}: the answer names {is_found!r}, the label {wanted!r}", pytrace=False)
