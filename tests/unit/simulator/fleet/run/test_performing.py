"""What is left of a run that could not begin."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from simulator.cli import program
from simulator.exit_codes import ExitCode
from simulator.fleet.report.folder import RunFolder

SCENARIO = "scenario: s\nfleet: {devices: 1}\nphases: [{name: hold, kind: hold, duration_s: 1s}]\n"


def test_a_target_that_is_down_at_the_start_is_told_and_the_same_command_can_be_given_again(tmp_path: Path) -> None:
    scenario, secret, out = tmp_path / "s.yaml", tmp_path / "secret", tmp_path / "out"
    scenario.write_text(SCENARIO)
    secret.write_text("msk_secret")
    secret.chmod(0o600)
    where = ["--base-url", "http://127.0.0.1:9", "--api-key", "mk_key", "--secret-key-file", str(secret)]
    for _ in range(2):
        done = CliRunner().invoke(program, ["run", str(scenario), *where, "--out", str(out)], standalone_mode=False)
        assert getattr(done.exception, "exit_code", None) == ExitCode.UNREACHABLE, done.output
        assert "cannot connect to http://127.0.0.1:9" in str(done.exception)
        assert not out.exists()


def test_what_somebody_else_has_in_the_folder_stays(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    with RunFolder(tmp_path) as folder:
        folder.discard()
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    with RunFolder(tmp_path):
        pass
