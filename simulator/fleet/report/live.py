"""The live view of a run: a picture of the whole terminal, or plain lines where there is no terminal.

It is given events and does nothing but print: no clock, no thread, no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from simulator.fleet.metrics.ages import AGE_OPERATIONS, is_age
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import RunRecord, Second
from simulator.fleet.report.figures import ALL_OPERATIONS
from simulator.fleet.report.formatting import (
    ERRORS,
    OUTCOME_WORDS,
    Tone,
    clock_text,
    count_text,
    percent_text,
    plural,
    time_text,
)
from simulator.fleet.report.progress import Event, RunView
from simulator.fleet.report.summary import figures_table, print_summary

_LINE_EVERY_S: Final = 5
_NOTES_SHOWN: Final = 10
_NOTES_KEPT: Final = 200
_LABEL: Final = 18
_LAG_WARN_S: Final = 0.01
_CPU_WARN_PERCENT: Final = 90.0
_SENT_WARN: Final = 0.995
_STYLES: Final = {Tone.GOOD: "green", Tone.BAD: "bold red", Tone.WARN: "yellow", Tone.ACCENT: "cyan", Tone.PLAIN: ""}

Part = tuple[str, str]
"""Words and their rich style."""


class ConsoleView(RunView):
    """A picture of the run that is drawn anew with each event; without a terminal a line every few seconds.

    What happens in between is a line each, which stays on the ordinary screen afterwards.

    Args:
        console: where it is shown; a rich one knows whether it is a terminal.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._run: Event = {}
        self._second: Event = {}
        self._stage: Event = {}
        self._notes: list[Text] = []
        self._shown = -_LINE_EVERY_S
        self._live: Live | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def show(self, event: Event, source: Second | RunRecord | None = None) -> None:
        """Print it, or draw the picture anew; in the end the picture goes, and verdict and figures are printed."""
        match event["event"]:
            case "run":
                self._run = event
                if self._console.is_terminal and not self._console.is_dumb_terminal:
                    self._live = Live(get_renderable=self.picture, console=self._console, screen=True,
                                      auto_refresh=False)  # fmt: skip
                    self._live.start()
                else:
                    self._print(Text(f"{event['scenario']}: {self._about()}"))
            case "stage":
                if self._live is None and event["text"] and event["text"] != self._stage.get("text"):
                    whole = f" ({event['whole']:,})" if event["whole"] else ""
                    self._note(self._now_s, event["text"] + whole, Tone.PLAIN)
                self._stage = event
            case "note":
                self._note(event["at_s"], event["text"], event["tone"])
            case "second":
                self._second, self._stage = event, {}
                if self._live is None and event["second"] - self._shown >= _LINE_EVERY_S:
                    self._shown = event["second"]
                    self._print(Text(" | ".join(self._line())))
            case "end":
                self._leave()
                if isinstance(source, RunRecord):
                    print_summary(self._console, source)
        if self._live is not None:
            self._live.refresh()

    @property
    def _now_s(self) -> int:
        """How many seconds the run has been going on."""
        return self._second["second"] + 1 if self._second else 0

    def picture(self) -> RenderableType:
        """The picture, the most important first: it is cut off at the terminal's height."""
        facts = Table.grid(padding=(0, 1))
        facts.add_column(width=_LABEL, style="dim", no_wrap=True)
        facts.add_column()
        for label, parts in self._facts() if self._second else ():
            facts.add_row(label, Text(" · ").join(Text(*part) for part in parts))
        end = Text("Ctrl-C ends the run and still makes the report", "dim")
        notes = reversed(self._notes[-_NOTES_SHOWN:])
        return Group(*self._progress(), self._operations(), facts, end, Rule(style="bright_black"), *notes)

    def _note(self, at_s: float, text: str, tone: Tone) -> None:
        line = Text(f"{clock_text(at_s):>7}  {text}", _STYLES[tone])
        if self._live is None:
            self._print(line)
        else:
            self._notes = [*self._notes[-_NOTES_KEPT + 1 :], line]

    def _print(self, line: Text) -> None:
        self._console.print(line, highlight=False, soft_wrap=True)

    def _leave(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
            for line in self._notes:
                self._print(line)

    def _about(self) -> str:
        """What is run."""
        run = self._run
        noun = "label" if run["kind"] == "onboarding" else "device"
        words = (plural(run["devices"], noun), run["transport"], run["kind"], plural(run["workers"], "worker"))
        return ", ".join((*words, run["target"]))

    def _line(self) -> Iterator[str]:
        """How the run stands, in one line."""
        event, phase = self._second, self._second["phase"]
        yield f"{clock_text(self._now_s):>7}  {phase['name'] if phase else 'no phase'}"
        yield f"{count_text(event['figures'][ALL_OPERATIONS]['ok_per_s'])}/s ok"
        for name in (*AGE_OPERATIONS, ALL_OPERATIONS):
            if found := event["figures"].get(name):
                yield f"{name} p99 {time_text(found['response_s']['p99'])}"
        for label, parts in self._facts():
            yield f"{label} {', '.join(text for text, _ in parts)}"

    def _progress(self) -> Iterator[RenderableType]:
        run, event, now_s = self._run, self._second, self._now_s
        planned = f" of {clock_text(run['duration_s'])}" if run["duration_s"] else ""
        title = Text.assemble(
            (f"{run['scenario']}  {clock_text(now_s)}{planned}", "bold"), (f"  {self._about()}", "dim")
        )
        title.truncate(self._console.width, overflow="ellipsis")
        yield title
        if self._stage.get("text"):
            done, whole = self._stage["done"], self._stage["whole"]
            yield _bar(self._stage["text"], f"{done:,} of {whole:,}" if whole else "", done, whole)
        elif event and (phase := event["phase"]):
            length_s, done_s = phase["end_s"] - phase["begin_s"], now_s - phase["begin_s"]
            waiting = f", until {event['waiting_for']}" if event["waiting_for"] else ""
            yield _bar(phase["name"], f"{clock_text(done_s)} of {clock_text(length_s)}{waiting}", done_s, length_s)
        for fault in event["faults"] if event else ():
            left = clock_text(fault["end_s"] - now_s)
            yield Text(f"fault {fault['name']}: {plural(fault['devices'], 'device')}, {left} left", "yellow")
        yield Rule(style="bright_black")

    def _operations(self) -> RenderableType:
        figures = self._second.get("figures", {})
        if len(figures) <= 1:  # of all operations, which are none
            return Text("nothing measured yet", "dim")
        shown = {name: each for name, each in figures.items() if name in AGE_OPERATIONS or not is_age(name)}
        return figures_table(shown, f"last {self._second['seconds']} s", self._console.width)

    def _facts(self) -> Iterator[tuple[str, Sequence[Part]]]:
        event = self._second
        yield "generator", self._generator()
        yield "so far", self._outcomes()
        if gauges := event["gauges"]:  # counted by the devices; the service is asked at the end
            yield "devices", [(f"{count_text(value)} {name.replace('_', ' ')}", "") for name, value in gauges.items()]
        if dead := [number for number, state in event["workers"].items() if state == "dead"]:
            yield "workers", [(f"{', '.join(dead)} of {plural(len(event['workers']), 'worker')} dead", "bold red")]
        if gaps := event["gaps"]:
            missing = f"{plural(len(gaps), 'gap')}, {sum(gap['to_s'] - gap['from_s'] for gap in gaps):.0f} s of workers"
            yield "gaps", [(f"{missing}; worker {gaps[-1]['worker']}: {gaps[-1]['reason']}", "red")]

    def _outcomes(self) -> list[Part]:
        """How many exchanges ended how since the begin: the good ones, and what there is of others."""
        counts = self._second["so_far"]
        others = [
            (f"{counts[kind]:,} {OUTCOME_WORDS[kind]}", "yellow" if kind is OutcomeClass.LIMITED else "bold red")
            for kind in (*ERRORS, OutcomeClass.LIMITED)
            if counts.get(kind)
        ]
        return [(f"{counts.get(OutcomeClass.OK, 0):,} ok", ""), *others]

    def _generator(self) -> list[Part]:
        health = self._second["generator"]
        share = health["sent"] / health["intended"] if health["intended"] else None
        parts = [
            (f"lag p99 {time_text(health['send_lag_p99_s'])}", health["send_lag_p99_s"] > _LAG_WARN_S),
            (f"max {time_text(health['send_lag_max_s'])}", False),
            (f"sent {percent_text(share)}", share is not None and share < _SENT_WARN),
            (f"CPU {health['cpu_percent']:.0f} %", health["cpu_percent"] > _CPU_WARN_PERCENT),
            (f"loop {time_text(health['loop_lag_max_s'])}", health["loop_lag_max_s"] > 10 * _LAG_WARN_S),
            (f"steal {health['steal_percent']:.0f} %", health["steal_percent"] >= 1),
        ]
        return [(part, "bold yellow" if is_bad else "") for part, is_bad in parts]


def _bar(label: str, far: str, done: float, whole: float) -> Table:
    row = Table.grid(expand=True, padding=(0, 1))
    row.add_column(min_width=_LABEL, style="bold cyan", no_wrap=True)
    row.add_column(ratio=1, min_width=10)
    row.add_column(no_wrap=True, overflow="ellipsis")
    row.add_row(label, ProgressBar(total=whole or 1, completed=done), far)
    return row
