"""Runs held against each other by ``fleet-simulator compare``, and the pages that come of it."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pydantic_core import from_json

from agent.errors import ConfigurationError
from simulator.console.runs.folder import FoundRun
from simulator.console.runs.plain_files import check_plain
from simulator.console.runs.programs import Ended, Programs
from simulator.console.runs.records import CompareRuns, ComparisonShown
from simulator.exit_codes import ExitCode
from simulator.service.addresses import CONTROL_PREFIX
from simulator.service.errors import Conflict, Invalid

COMPARISONS: Final = f"{CONTROL_PREFIX}run-comparisons"
_KEPT: Final = 8
_OUTCOMES: Final = {ExitCode.GOOD: "not_worse", ExitCode.CHECK_FAILED: "worse", ExitCode.INCONCLUSIVE: "not_judged"}


class Comparisons:
    """Makes comparisons, and keeps the pages of the last few.

    Args:
        programs: run the command.
    """

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self._pages: OrderedDict[str, bytes] = OrderedDict()

    def page(self, comparison_id: str) -> bytes | None:
        """The page of a comparison; None when it is not kept any more."""
        return self._pages.get(comparison_id)

    async def compare(self, runs: Sequence[FoundRun], wanted: CompareRuns) -> ComparisonShown:
        """Compare two runs, or make the history of more.

        Raises:
            Invalid: an option is for two runs only.
            Conflict: ``not_comparable``: the command says why.
        """
        is_history = len(runs) > 2
        if is_history and wanted.phase is not None:
            raise Invalid("validation_error", "phase: for two runs only.", details=[("phase", "for two runs only")])
        try:
            for run in runs:
                await asyncio.to_thread(check_plain, run.path)
        except ConfigurationError as error:
            raise Conflict("not_comparable", f"The runs cannot be compared: {error.faults[0]}.") from None
        with tempfile.TemporaryDirectory(prefix="fleet-simulator-compare-") as place:
            html = Path(place) / "page.html"
            words = ["compare", "--json", "--html", str(html), *(["--history"] if is_history else [])]
            words += ["--phase", wanted.phase] if wanted.phase is not None else []
            words += ["--anyway"] if wanted.anyway else []
            ended = await self._programs.run(*words, "--", *(str(run.path) for run in runs))
            if ended.exit_code not in _OUTCOMES:
                raise Conflict("not_comparable", f"The runs cannot be compared: {_said(ended)}")
            made = html.read_bytes()
        comparison_id = secrets.token_hex(8)
        self._pages[comparison_id] = made
        while len(self._pages) > _KEPT:
            self._pages.popitem(last=False)
        result: dict[str, Any] = from_json(ended.output)
        return ComparisonShown(
            id=comparison_id,
            runs=[run.id for run in runs],
            outcome=_OUTCOMES[ExitCode(ended.exit_code)],
            conclusion=str(result.get("conclusion", "")),
            page=f"{COMPARISONS}/{comparison_id}",
            result=result,
        )


def _said(ended: Ended) -> str:
    lines = [line.removeprefix("Error: ") for line in ended.errors.splitlines() if line.strip()]
    return "; ".join(lines[-5:])[:1000] or f"exit code {ended.exit_code}"
