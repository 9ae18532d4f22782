"""The program's words: which file a run reads, and what a former command is called now."""

import pytest

from agent.cli.options import CONFIG_VARIABLE
from agent.cli.run import run
from agent.config.load import DEFAULT_PATH


@pytest.mark.parametrize(
    ("words", "named", "read"),
    [
        ([], None, str(DEFAULT_PATH)),
        ([], "", str(DEFAULT_PATH)),
        ([], "agent.yaml", "agent.yaml"),
        (["--config", "other.yaml"], "agent.yaml", "other.yaml"),
    ],
)
def test_a_run_reads_the_file_that_it_is_given(words, named, read, monkeypatch):
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)
    if named is not None:
        monkeypatch.setenv(CONFIG_VARIABLE, named)
    with run.make_context("run", words) as context:
        assert str(context.params["config_path"]) == read
