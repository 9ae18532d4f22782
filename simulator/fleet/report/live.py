"""The live view of a run: a picture of the whole terminal, or plain lines where there is no terminal.

It is given events and does nothing but print: no clock, no thread, no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from simulator.fleet.metrics.ages import COMMAND_AGE, READING_AGE
from simulator.fleet.metrics.recorder import is_cumulative
from simulator.fleet.outcomes import HELD, OutcomeClass
from simulator.fleet.record import RunRecord, Second
from simulator.fleet.report.figures import SHOWN_PERCENTILES, percentile_name
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
from simulator.fleet.report.summary import print_summary

_LINE_EVERY_S: Final = 5
_NOTES_SHOWN: Final = 10
_NOTES_KEPT: Final = 200
_LABEL: Final = 18
_LAG_WARN_S: Final = 0.01
_CPU_WARN_PERCENT: Final = 90.0
_SENT_WARN: Final = 0.995
_STYLES: Final = {Tone.GOOD: "green", Tone.BAD: "bold red", Tone.WARN: "yellow", Tone.ACCENT: "cyan", Tone.PLAIN: ""}
_DEAD: Final = "dead"

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
                    self._print(Text(f"{event['scenario']}: {', '.join((*self._parts(), event['target']))}"))
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
        """The picture, the most important first: whoever prints it cuts it to the terminal's height."""
        facts = Table.grid(padding=(0, 1))
        facts.add_column(width=_LABEL, style="dim", no_wrap=True)
        facts.add_column()
        for label, parts in self._facts() if self._second else ():
            if parts:
                facts.add_row(label, Text(" · ").join(Text(*part) for part in parts))
        end = Text("Ctrl-C ends the run and still makes the report", "dim")
        notes = reversed(self._notes[-_NOTES_SHOWN:])
        return Group(*self._progress(), self._operations(), facts, end, Rule(style="bright_black"), *notes)

    def _note(self, at_s: float, text: str, tone: Tone) -> None:
        line = Text(f"{clock_text(at_s):>7}  {text}", _STYLES[tone])
        if self._live is None:
            self._print(line)
        else:
            self._notes.append(line)
            del self._notes[:-_NOTES_KEPT]

    def _print(self, line: Text) -> None:
        self._console.print(line, highlight=False, soft_wrap=True)

    def _leave(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
            for line in self._notes:
                self._print(line)

    def _line(self) -> Iterator[str]:
        """How the run stands, in one line."""
        event, phase, every = self._second, self._second["phase"], self._second["all"]
        yield f"{clock_text(self._now_s):>7}  {phase['name'] if phase else 'no phase'}"
        yield f"{count_text(every['ok_per_s'])}/s ok"
        for name, age in event["ages"].items():
            yield f"age of {name.partition('.')[0]} p99 {time_text(age['response_s']['p99'])}"
        yield f"response p99 {time_text(every['response_s']['p99'])}"
        yield f"429 {count_text(every['limited_per_s'])}/s"
        yield f"errors {sum(event['so_far'].get(kind, 0) for kind in ERRORS):,}"
        if "online" in event["gauges"]:
            yield f"online {count_text(event['gauges']['online'])} of {self._run['devices']:,}"
        yield f"generator lag p99 {time_text(event['generator']['send_lag_p99_s'])}, sent {percent_text(self._sent())}"

    def _progress(self) -> Iterator[RenderableType]:
        run, event, now_s = self._run, self._second, self._now_s
        title = Table.grid(expand=True)
        title.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        title.add_column(justify="right", no_wrap=True, style="bold")
        words = " · ".join((*self._parts(), plural(run["workers"], "worker"), run["target"]))
        planned = f" of {clock_text(run['duration_s'])}" if run["duration_s"] else ""
        title.add_row(Text.assemble((run["scenario"], "bold"), (f"  {words}", "dim")), clock_text(now_s) + planned)
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
            name = "" if fault["name"] == fault["kind"] else f" ({fault['name']})"
            yield Text(f"fault {fault['kind']}: {plural(fault['devices'], 'device')}, {left} left{name}", "yellow")
        yield Rule(style="bright_black")

    def _operations(self) -> RenderableType:
        rows = dict(self._second["operations"]) if self._second else {}
        if not rows:
            return Text("nothing measured yet", "dim")
        if len(rows) > 1:
            rows["all operations"] = self._second["all"]
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        table.add_column("last 10 s, per second", no_wrap=True)
        for name in ("ok", "429", "errors", *map(percentile_name, SHOWN_PERCENTILES), "service p99"):
            table.add_column(name, justify="right", no_wrap=True)
        for name, figures in rows.items():
            limited, errors = figures["limited_per_s"], figures["errors_per_s"]
            # How long the service held a poll on purpose is no time that anybody has to mind.
            of_times = "dim" if name in HELD else ""
            table.add_row(
                name,
                Text(count_text(figures["ok_per_s"]), "green"),
                Text(count_text(limited), "yellow" if limited else "dim"),
                Text(count_text(errors), "bold red" if errors else "dim"),
                *(Text(time_text(value), of_times) for value in figures["response_s"].values()),
                Text(time_text(figures["service_s"]["p99"]), "dim"),
            )
        return table

    def _facts(self) -> Iterator[tuple[str, Sequence[Part]]]:
        event = self._second
        for name, good in ((READING_AGE, "accepted"), (COMMAND_AGE, "ended")):
            if age := event["ages"].get(name):
                parts = [(f"{at} {time_text(value)}", "bold") for at, value in age["response_s"].items()]
                rate = f"{count_text(age['ok_per_s'])} {good} per s"
                yield f"age of {name.partition('.')[0]}", [*parts, (rate, ""), ("last 10 s", "dim")]
        yield "generator", self._generator()
        counts = event["so_far"]
        errors = [
            (f"{counts[kind]:,} {OUTCOME_WORDS[kind]}", "yellow" if kind is OutcomeClass.LIMITED else "bold red")
            for kind in (*ERRORS, OutcomeClass.LIMITED)
            if counts.get(kind)
        ]
        yield "so far", [(f"{counts.get(OutcomeClass.OK, 0):,} ok", ""), *errors]
        families: dict[str, list[Part]] = {}
        for name, value in sorted(event["gauges"].items()):
            family, _, what = name.partition("_")
            if is_cumulative(name):  # by the devices' own ledgers: the service is read back only at the end
                families.setdefault(family, []).append((f"{value:,.0f} {what.replace('_', ' ')}", ""))
            else:
                of_all = f" of {self._run['devices']:,}" if name == "online" else ""
                text = f"{count_text(value)}{of_all} {name.replace('_', ' ')}"
                families.setdefault(f"{self._noun}s", []).append((text, ""))
        yield from families.items()
        if states := event["workers"]:
            dead = [number for number, state in states.items() if state == _DEAD]
            at_work = (f"{len(states) - len(dead)} of {len(states)} at work", "")
            yield "workers", [at_work, *((f"{number} is dead", "bold red") for number in dead)]
        if gaps := event["gaps"]:
            latest = gaps[-1]
            yield "gaps", [(f"{_gaps_text(gaps)}; worker {latest['worker']}: {latest['reason']}", "red")]

    def _generator(self) -> list[Part]:
        health, share = self._second["generator"], self._sent()
        parts = [
            (f"lag p99 {time_text(health['send_lag_p99_s'])}", health["send_lag_p99_s"] > _LAG_WARN_S),
            (f"max {time_text(health['send_lag_max_s'])}", False),
            (f"sent {percent_text(share)}", share is not None and share < _SENT_WARN),
            (f"CPU {health['cpu_percent']:.0f} %", health["cpu_percent"] > _CPU_WARN_PERCENT),
            (f"loop {time_text(health['loop_lag_max_s'])}", health["loop_lag_max_s"] > 10 * _LAG_WARN_S),
            (f"steal {health['steal_percent']:.0f} %", health["steal_percent"] >= 1),
        ]
        return [(part, "bold yellow" if is_bad else "") for part, is_bad in parts]

    def _sent(self) -> float | None:
        health = self._second["generator"]
        return health["sent"] / health["intended"] if health["intended"] else None

    @property
    def _noun(self) -> str:
        return "label" if self._run["kind"] == "onboarding" else "device"

    def _parts(self) -> tuple[str, ...]:
        """What the run is made of, in a few words each."""
        return plural(self._run["devices"], self._noun), self._run["transport"], self._run["kind"]


def _bar(label: str, far: str, done: float, whole: float) -> Table:
    row = Table.grid(expand=True, padding=(0, 1))
    row.add_column(min_width=_LABEL, style="bold cyan", no_wrap=True)
    row.add_column(ratio=1, min_width=10)
    row.add_column(no_wrap=True, overflow="ellipsis")
    row.add_row(label, ProgressBar(total=whole or 1, completed=done), far)
    return row


def _gaps_text(gaps: Sequence[dict[str, Any]]) -> str:
    """How much is missing: ``2 gaps, 14 s of workers``."""
    return f"{plural(len(gaps), 'gap')}, {sum(gap['to_s'] - gap['from_s'] for gap in gaps):.0f} s of workers"
