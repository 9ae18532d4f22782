"""The onboarding driver as a consumer, through its command ``fleet-simulator onboard cases``."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from simulator.cli import program
from simulator.exit_codes import ExitCode
from tests.servers.accounts import Account
from tests.servers.expectations import check_elsewhere
from tests.servers.fronts import Fronts

CASES = ("round_trip", "register_twice", "return", "second_owner")
"""A journey, a repetition, the way back, and somebody else's turn."""


def play_onboarding(account: Account, fronts: Fronts, folder: Path) -> list[str]:
    """Play some cases; what was wrong, empty when nothing was."""
    secret = folder / "secret"
    secret.touch(mode=0o600)
    secret.write_text(account.secret_key)
    chosen = [part for name in CASES for part in ("--only", name)]
    way = ["--base-url", account.front.url, "--api-key", account.api_key, "--secret-key-file", str(secret)]
    result = CliRunner().invoke(program, ["onboard", "cases", *way, *chosen, "--json"], standalone_mode=False)
    code = getattr(result.exception, "exit_code", result.return_value)
    problems = []
    if result.exception is not None and code is None:
        problems.append(f"it raised {result.exception!r}")
    elif code != ExitCode.GOOD:
        problems.append(f"it ended with {code}: {result.stderr[-500:]}")
    try:
        cases = json.loads(result.stdout)["cases"]
    except (ValueError, KeyError):
        problems.append(f"it printed no report: {result.stdout[-300:]}")
    else:
        problems += [
            f"{case['name']}: {case['verdict']}: {_steps(case)}"
            for case in cases
            if case["verdict"] not in {"passed", "allowed"}
        ]
        if len(cases) != len(CASES):
            problems.append(f"{len(cases)} cases were played instead of {len(CASES)}")
    return problems + check_elsewhere(fronts, account.secret_key)


def _steps(case: dict[str, object]) -> str:
    steps = case.get("steps")
    wrong = [step for step in steps if step.get("verdict") == "failed"] if isinstance(steps, list) else []
    return json.dumps(wrong)[:400]
