"""What the tests of checks say of a finding."""

from __future__ import annotations

from agent.doctor import CheckStatus, Finding


def is_ok(finding: Finding, *words: str) -> None:
    assert finding.verdict is CheckStatus.OK, finding
    assert all(word in finding.seen for word in words), finding


def is_bad(finding: Finding, verdict: str, cause: str, fix: str, *, unreachable: bool = False) -> None:
    assert finding.verdict == verdict, finding
    assert cause in finding.cause, finding
    assert fix in finding.fix, finding
    assert finding.is_unreachable is unreachable, finding
    assert "\n" not in finding.seen + finding.cause + finding.fix
