"""A fleet behind a gateway and a broker of one's own, which nothing but options names."""

from __future__ import annotations

from pathlib import Path

import yaml
from click.testing import CliRunner

from simulator.cli import program
from simulator.fleet.report.folder import read_record
from simulator.fleet.target.target import running_local
from tests.conftest import require_program
from tests.support.mosquitto import find_mosquitto

DEVICES = 5


def test_devices_behind_a_gateway_that_options_name(tmp_path: Path) -> None:
    if find_mosquitto() is None:
        require_program("mosquitto")
    scenario = {
        "scenario": "own-gateway",
        "target": {"transport": "mqtt"},
        "fleet": {"devices": DEVICES, "models": [{"telemetry": {"every_s": 1}}]},
        "phases": [{"name": "hold", "kind": "hold", "duration_s": 3, "until": f"online >= {DEVICES}"}],
        "thresholds": ["audit.lost == 0"],
    }
    path = tmp_path / "scenario.yaml"
    path.write_text(yaml.safe_dump(scenario))
    with running_local(tmp_path / "up", gateway=True) as there:
        (pair,) = there.key_files
        service = ["--base-url", there.base_url, "--api-key", pair.api_key, "--secret-key-file", pair.secret_key_file]
        gateway = ["--gateway", there.gateway_url, "--gateway-config", there.gateway_config]

        def run(*options: object) -> tuple[int, str]:
            words = ["run", path, "--out", tmp_path / "run", "--quiet", *service, *options]
            done = CliRunner().invoke(program, [str(word) for word in words])
            return done.exit_code, done.output

        refused = [run(), run(*gateway), run(*gateway[:2], "--gateway-config", tmp_path / "none.yaml")]
        code, said = run(*gateway, "--broker", there.broker_url)
    told = ["--gateway-config of your own", "--broker mqtt://host:port", "none.yaml is not there"]
    for (refusal, sentence), words in zip(refused, told, strict=True):
        assert (refusal, words in sentence) == (2, True), sentence
    record = read_record(tmp_path / "run")
    assert record.audit is not None
    assert record.audit.readings is not None
    assert record.audit.readings.accepted >= DEVICES
    assert record.audit.readings.lost == 0, said
    assert code in {0, 3}, said  # 3: a machine with other work was the limit
