"""``fleet-simulator snapshots`` against a service."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.cli import main
from tests.service_running import running


def test_a_state_is_saved_listed_loaded_and_removed(capsys):
    with running() as bench:

        def play(*words):
            with pytest.raises(SystemExit) as ended:
                main(["snapshots", *words, "--base-url", bench.service.base_url])
            said = capsys.readouterr()
            return ended.value.code, said.out, said.err

        bench.product(name="first")
        code, out, err = play("save", "before")
        assert (code, err) == (0, "")
        assert out.startswith("before: ")
        assert json.loads(play("save", "--json")[1])["name"].startswith("snapshot-")
        bench.product(name="second")
        assert play("load", "before")[0] == 0
        assert [one["name"] for one in bench.http.get("/products").json()["data"]] == ["first"]
        folder = Path(json.loads(play("list", "--json")[1])["snapshots"][0]["file"]).parent
        bad = folder / f"bad{'-' * 80}.jsonl"
        bad.write_text("{}")
        for path, shown in ((folder / "before.jsonl", "before"), (bad, "The snapshot cannot be loaded: format is not")):
            [line] = [line for line in play("list")[1].splitlines() if str(path) in line]
            assert shown in line
        bad.unlink()
        assert len(json.loads(play("list", "--json")[1])["snapshots"]) == 2
        code, _, err = play("save", "before")
        assert code == 1
        assert "there is a snapshot 'before' already" in err
        assert play("remove", "before")[0] == 0
        code, _, err = play("load", "before")
        assert code == 1
        assert "snapshot_not_found" in err
