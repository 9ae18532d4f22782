"""Seeds beside the contract: the example, and where the slow part is done."""

from __future__ import annotations

import json
import tempfile
import threading
from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from simulator.service.config import ServiceConfig
from simulator.service.seed import Seed, SeedFaultsError, parse_seed
from simulator.service.server import RunningService
from simulator.service.storage import seeding
from tests.service_running import running

EXAMPLE = Path(__file__).parents[4] / "configs" / "seed.yaml"


def test_the_example_is_a_seed_and_twice_changes_nothing():
    seed = parse_seed(EXAMPLE.read_bytes())
    items = sum(len(lines) for lines in (seed.products, seed.rules, seed.devices, seed.users))
    with running(seed_file=EXAMPLE) as bench:
        again = bench.http.post(
            "/_emulator/seed", content=EXAMPLE.read_bytes(), headers={"content-type": "application/yaml"}
        )
        assert again.json() == {"created": 0, "changed": 0, "unchanged": items}


def test_a_seed_in_json_may_write_what_it_names_in_escapes():
    names = ["T\u00fcr \U0001f6aa", "on", "2026-01-01"]
    products = parse_seed(json.dumps({"products": [{"name": name} for name in names]}).encode()).products
    assert [line.item.name for line in products] == names


def test_faults_of_the_text_and_of_what_it_says_come_together():
    text = """products:
  - {name: "\\ud83d alone"}
  - {name: twice, name: twice}
  - name: fine
    metadata: {n: .nan}
  - name: ''
    commands:
      - payload_schema: {}
"""
    with pytest.raises(SeedFaultsError) as told:
        parse_seed(text.encode())
    assert [(line, field) for line, field, _ in told.value.faults] == [
        (2, "products.0.name"),
        (3, "products.1.name"),
        (5, "products.2.metadata.n"),
        (6, "products.3.name"),
        (8, "products.3.commands.0.name"),
    ]


@pytest.mark.parametrize("nothing", ["", "# products: later", "---", "~"])
def test_a_seed_without_anything_changes_nothing(nothing):
    assert parse_seed(nothing.encode()) == Seed()


def test_passwords_are_hashed_neither_by_the_writer_nor_on_the_event_loop(monkeypatch):
    threads = []
    really = seeding.hash_password

    def hash_password(password):
        threads.append(threading.current_thread().name)
        return really(password)

    monkeypatch.setattr(seeding, "hash_password", hash_password)
    with running() as bench:
        seed = {"users": [{"email": "ada@example.com", "password": "correct horse"}]}
        assert bench.http.post("/_emulator/seed", json=seed).json()["created"] == 1
    assert len(threads) == 1
    assert threads[0] not in {"service-writer", "service-http"}


def test_a_device_whose_name_or_qr_info_differs_is_changed():
    def seed(**device):
        wanted = {"product": "Door", "user_id": "u", "device_identifier": "SN-1", **device}
        return {"products": [{"name": "Door"}], "devices": [wanted]}

    with running() as bench:
        assert bench.http.post("/_emulator/seed", json=seed(device_name="Alpha")).json()["created"] == 2
        for device in ({"device_name": "Beta"}, {"device_name": "Beta", "qr_info": {"batch": 7}}):
            done = bench.http.post("/_emulator/seed", json=seed(**device)).json()
            assert done == {"created": 0, "changed": 1, "unchanged": 1}
            assert bench.http.post("/_emulator/seed", json=seed(**device)).json()["changed"] == 0
        assert [one["device_name"] for one in bench.http.get("/devices").json()["data"]] == ["Beta"]


def test_a_service_whose_console_cannot_be_made_leaves_no_folder_and_no_thread(tmp_path, monkeypatch):
    def refuse(_service):
        raise ConfigurationError(["there is no such folder"], "console")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = threading.active_count()
    with pytest.raises(ConfigurationError):
        RunningService(ServiceConfig(), make_addition=refuse)
    assert list(tmp_path.iterdir()) == []
    assert threading.active_count() == before
