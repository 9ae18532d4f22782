"""The command line of the service."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from simulator.cli import program


@pytest.fixture
def refused():
    """Run the service with options that it refuses, in this process; what it says."""

    def refuse(*arguments: str, **environment: str) -> str:
        result = CliRunner().invoke(program, ["service", "--port", "0", *arguments], env=environment)
        assert result.exit_code == 2, result.output
        return result.stderr.strip()

    return refuse


def test_settings_that_cannot_be_used_are_one_line_and_exit_code_2(refused, tmp_path):
    missing, empty = tmp_path / "nothing", tmp_path / "empty"
    assert "No such file" in refused("--api-key", "mk_a", "--secret-key-file", str(missing))
    empty.write_text("\n")
    assert "is empty" in refused("--api-key", "mk_a", "--secret-key-file", str(empty))
    both = refused("--api-key", "mk_a", "--secret-key", "msk_a", "--secret-key-file", str(missing))
    assert both == "error: give --secret-key or --secret-key-file, not both"
    assert len(refused("--api-key", "a", "--secret-key", "b").splitlines()) == 2
    assert "--rate-limit" in refused(FLEET_SIMULATOR_SERVICE_RATE_LIMIT="-1")


def test_a_variant_with_a_choice_that_does_not_exist_is_refused_with_the_nearest_one(refused):
    said = refused("--variant", "list_shap=bare")
    assert said.startswith("error: --variant list_shap=bare: list_shap: ")
    assert "did you mean 'list_shape'?" in said


def test_help_and_wrong_options_need_none_of_the_services_libraries():
    program = "import sys, simulator.service.cli; print(sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.split("'"))
    assert "click" in loaded
    assert not {"sqlalchemy", "uvicorn", "starlette"} & loaded
