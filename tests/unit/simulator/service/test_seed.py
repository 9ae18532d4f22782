"""Seeds beside the contract: the example, and where the slow part is done."""

from __future__ import annotations

import threading
from pathlib import Path

from simulator.service.seed import parse_seed
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
