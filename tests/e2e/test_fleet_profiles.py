"""A small fleet, onboarding cases and labels against profiles of the local service."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.test_fleet_plain_servers import SCENARIO, _at_any_speed, fleet  # noqa: F401 - a fixture
from tests.variants import running_as, variant

pytestmark = pytest.mark.long

PROFILES = {
    "plain": {},
    "HTML errors, text bodies": {"error_shape": "html"},
    "pages by next URL, _id": {"list_shape": "results", "paging": "next_url", "id_name": "_id"},
}


@pytest.fixture(name="bench", params=PROFILES)
def _bench(request, tmp_path):
    with running_as(variant("plain", **PROFILES[request.param])) as bench:
        secret = tmp_path / "keys"
        secret.write_text(bench.service.secret_key.reveal())
        secret.chmod(0o600)
        yield bench


def ask(bench, folder: Path, *arguments: str) -> tuple[int, str]:
    secret = bench.service.secret_key.reveal()
    return fleet(folder, bench.service.base_url, *arguments, api_key=bench.service.api_key, secret_key=secret)


def test_a_run_of_a_fleet_holds_with_commands_from_its_first_second(bench, tmp_path):
    begin, end = SCENARIO.index("  - {name: ramp"), SCENARIO.index("drain_s")
    phases = "  - {name: ramp, kind: ramp, duration_s: 2s}\n  - {name: hold, kind: hold, duration_s: 3s}\n"
    scenario, out = tmp_path / "s.yaml", tmp_path / "out"
    scenario.write_text(SCENARIO[:begin] + phases + SCENARIO[end:])
    code, said = ask(bench, tmp_path, "run", str(scenario), "--out", str(out))
    assert code == 0, said
    verdict = json.loads((out / "run.json").read_text())["verdict"]
    assert any("nothing was lost" in sentence for sentence in verdict["sentences"])
