"""A program reads its whole input also when the agent is killed in the moment in which it starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.process.program import run_program
from tests.unit.agent import killed_parents


def sizes_read(kills: int, size_bytes: int, when: str) -> dict[str, int]:
    argv = [sys.executable, str(Path(killed_parents.__file__)), str(kills), str(size_bytes), when]
    environment = {**os.environ, "PYTHONPATH": str(Path(killed_parents.__file__).parents[3])}
    done = subprocess.run(argv, stdout=subprocess.PIPE, env=environment, check=True, timeout=600)
    return json.loads(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="the harness waits for orphans, which only Linux can")
def test_no_program_of_killed_agents_reads_an_empty_or_a_cut_input():
    assert sizes_read(20, 30, "exec") == {"30": 20}
    # More than a pipe holds: a writer would have to be there to the end.
    sizes = sizes_read(200, 200_000, "random")
    assert set(sizes) == {"200000"}
    assert sizes["200000"] >= 20


def test_a_machine_without_memory_files_gives_the_input_as_well(monkeypatch):
    monkeypatch.delattr("os.memfd_create")
    assert run_program(["cat"], timeout_s=60, input_bytes=b"payload").output == b"payload"


def test_a_program_without_input_reads_an_end_at_once():
    assert run_program(["cat"], timeout_s=60).output == b""
