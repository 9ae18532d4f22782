"""Every snippet of docs/oauth.md runs as it stands, against the real service."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.wire.client import Connection
from simulator.login.flow import SignIn
from simulator.login.tokens import TokenSet, write_tokens
from simulator.service.scopes import SCOPES
from tests.conftest import require_program
from tests.support.partner import PlainBrowser
from tests.support.processes import run_program
from tests.support.service_running import Bench, running

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "oauth.md").read_text("utf-8")
EMAIL, PASSWORD = "ada@example.com", "correct horse battery staple"


def snippets(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def bench(tmp_path_factory) -> Iterator[Bench]:
    """A service with the page's own seed file."""
    (text,) = snippets("yaml")
    seed = tmp_path_factory.mktemp("seed") / "seed.yaml"
    seed.write_text(text)
    with running(seed_file=seed) as found:
        yield found


@pytest.fixture(scope="module")
def browser(bench) -> Iterator[PlainBrowser]:
    with PlainBrowser(bench.service.base_url, EMAIL, PASSWORD) as found:
        yield found


def run(command: list[str], bench: Bench, browser: PlainBrowser, folder: Path) -> str:
    """Run it as its reader would: open what it prints, approve, paste where the browser ended; the rest it says."""
    program = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "BASE_URL": bench.service.base_url, "PYTHONPATH": str(ROOT)},
    )
    try:
        address = program.stdout.readline().strip()
        assert address.startswith(bench.service.base_url), address + program.communicate()[1]
        back = browser.send(browser.open(address), "approve").headers["location"]
        output, errors = program.communicate(back + "\n", timeout=120)
        assert program.returncode == 0, errors
        return output
    finally:
        program.kill()
        program.communicate()


def test_the_page_has_the_snippets_that_these_tests_run():
    assert (len(snippets("python")), len(snippets("js")), len(snippets("yaml"))) == (2, 1, 1)


def test_the_confidential_client_in_python_runs(bench, browser, tmp_path):
    (tmp_path / "app.py").write_text(snippets("python")[0])
    output = run([sys.executable, "app.py"], bench, browser, tmp_path)
    assert output.splitlines() == ["products: 0", "renewed: 200"]


def test_the_public_client_in_javascript_runs(bench, browser, tmp_path):
    node = require_program("node", "nodejs")
    (tmp_path / "app.mjs").write_text(snippets("js")[0])
    output = run([node, "app.mjs"], bench, browser, tmp_path)
    assert output.splitlines() == ["products: 0", "renewed: 200"]


def test_the_typed_client_runs_on_what_a_sign_in_wrote(bench, browser, tmp_path):
    redirect_uri = "http://127.0.0.1:8976/callback"
    with Connection(bench.service.base_url) as connection:
        sign_in = SignIn(connection, "my-desktop-app", None, "manufacturer:devices", redirect_uri)
        answer = browser.send(browser.open(sign_in.url), "approve")
        tokens = sign_in.finish(answer.headers["location"].partition("?")[2])
    write_tokens(tmp_path / "token.json", tokens)
    (tmp_path / "app.py").write_text(snippets("python")[1])
    done = run_program([sys.executable, "app.py"], cwd=tmp_path, environ={"PYTHONPATH": str(ROOT)})
    assert (done.stdout, done.stderr) == ("devices: 0\n", "")


def test_the_page_names_every_member_of_a_token_file_and_every_scope():
    missing = [name for name in TokenSet.model_fields if f"`{name}`" not in PAGE]
    missing += [scope for scope in SCOPES if f"`{scope.partition(':')[2]}`" not in PAGE]
    assert not missing
