"""``make steady``: does a process grow in two hours of steady work? Service, broker, gateway, 20 agents and a fleet.

    python -m tests.fault.steady [--hours 2] [--out FOLDER]

Real programs on loopback ports: six agents speak HTTP to the service, six HTTP to the gateway, eight MQTT; fifty
virtual devices work beside them. An operator sends a command a second: handlers that run, programs, commands that are
refused, that nobody fetches in time, that expire behind a long one. One device says ``online`` every five seconds. The
service stores on disk. Memory, open files and threads of each process are written to ``samples.csv`` every 10 s.

It fails when a process's memory at the end is more than 5 % above that of minute ten (:mod:`tests.fault.growth` says
what is compared), when it has more open files or threads, when a process ended, when a command did not end as it
should, or when a reading is missing or stored twice. What runs beside it on the machine does not matter, as long as
the processes get some time. A run of less than half an hour shows what grew and does not judge it: processes still
import, fill their caches and start their threads.

Exit codes: 0 nothing grew and nothing was lost, 1 something did, and the files are kept.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.errors import AgentError
from simulator.fleet.report.writing import read_record
from simulator.interrupts import terminations_as_interrupts
from tests.fault.growth import Sample, append_samples, judge, look_at, spans_of, table_of, write_heading
from tests.fault.operator_load import Outcome, Sent, operator, settle_and_judge
from tests.fault.steady_rig import Plan, SteadyRig
from tests.mosquitto import find_mosquitto

FULL_S: Final = 7200.0
JUDGED_FROM_S: Final = 1800.0
_WORD_EVERY_S: Final = 300.0
_FLEET_ENDS_WITHIN_S: Final = 900.0


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a run.

    Attributes:
        processes: those that were seen.
        faults: what fails it; what grew is among them where the run was long enough.
        words: further lines for a person.
    """

    table: str
    processes: list[str]
    faults: list[str]
    words: list[str]


def watch(processes: Mapping[str, int], plan: Plan, csv: Path, tell: Callable[[str], None]) -> list[Sample]:
    """Look at every process again and again; it returns after the plan's duration."""
    write_heading(csv)
    found: list[Sample] = []
    began_s = time.monotonic()
    next_word_s = _WORD_EVERY_S
    while (at_s := time.monotonic() - began_s) <= plan.duration_s:
        taken = [each for name, pid in processes.items() if (each := look_at(name, pid, round(at_s, 1)))]
        append_samples(csv, taken)
        found += taken
        if at_s >= next_word_s:
            total = sum(each.pss_kib for each in taken) / 1024
            tell(f"{at_s / 60:4.0f} min: {len(taken)} of {len(processes)} processes, {total:.0f} MiB together")
            next_word_s += _WORD_EVERY_S
        spent_s = time.monotonic() - began_s
        time.sleep(max(0.1, plan.sample_every_s - spent_s % plan.sample_every_s))
    return found


def run(folder: Path, csv: Path, mosquitto: str, plan: Plan, tell: Callable[[str], None]) -> Result:
    """Start everything in a folder that does not exist, watch it, and judge it."""
    folder.mkdir(parents=True)
    sent = Sent()
    with SteadyRig(folder, mosquitto, plan) as rig:
        rig.start_all()
        processes = rig.processes()
        tell(f"{len(processes)} processes run; watched for {plan.duration_s / 60:g} minutes")
        with operator(rig, sent):
            samples = watch(processes, plan, csv, tell)
        try:
            outcome = settle_and_judge(rig, sent)
        except AgentError as error:  # the samples of two hours are judged all the same
            outcome = Outcome([f"what was sent could not be read back: {error}"])
        faults = outcome.faults + sent.troubles + _judge_fleet(rig)
    spans = spans_of(plan.duration_s)
    findings = judge(samples, spans)
    faults += [each.ended for each in findings if each.ended]
    unseen = processes.keys() - {each.process for each in findings}
    faults += [f"{name} ended before the first look at it" for name in sorted(unseen)]
    words = [
        f"commands: {sum(map(len, sent.commands.values()))}, of them "
        + ", ".join(f"{count} {state}" for state, count in outcome.ends.most_common())
        + f"; sendings without an answer: {sent.unanswered}",
        f"readings whose numbers were followed: {outcome.readings}",
        f"processor time: {_cores_used(samples):.0%} of one core",
    ]
    if plan.duration_s >= JUDGED_FROM_S:
        faults += [sentence for each in findings for sentence in each.growth]
    if plan.duration_s < FULL_S:
        words.append(
            f"A run of {plan.duration_s / 60:g} minutes shows that this program works. It proves nothing about growth: "
            "that takes two hours."
        )
    return Result(table_of(findings, spans), [each.process for each in findings], faults, words)


def _judge_fleet(rig: SteadyRig) -> list[str]:
    """It ends by itself; its own audit says whether something was lost."""
    until_s = time.monotonic() + _FLEET_ENDS_WITHIN_S
    while rig.fleet.running and time.monotonic() < until_s:
        time.sleep(0.5)
    if rig.fleet.running:
        return [f"the fleet did not end within {_FLEET_ENDS_WITHIN_S:.0f} s"]
    if not (rig.fleet_out / "run.json").exists():
        return [f"the fleet left no record and ended with {rig.fleet.exit_code}; look at fleet.log"]
    audit = read_record(rig.fleet_out).audit
    if audit is None or audit.readings is None or audit.commands is None or not audit.complete:
        return [f"the fleet's audit is not complete: {audit.unjudged if audit else 'there is none'}"]
    return [
        f"the fleet's {name}: {stream.lost} lost, {stream.doubled} doubled, {stream.altered} altered"
        for name, stream in (("readings", audit.readings), ("commands", audit.commands))
        if stream.lost or stream.doubled or stream.altered
    ]


def _cores_used(samples: list[Sample]) -> float:
    by_process: dict[str, list[Sample]] = {}
    for each in samples:
        by_process.setdefault(each.process, []).append(each)
    spans = ((each[-1].cpu_s - each[0].cpu_s, each[-1].at_s - each[0].at_s) for each in by_process.values())
    return sum(used_s / lasted_s for used_s, lasted_s in spans if lasted_s)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Does a process grow in two hours of steady work?")
    parser.add_argument("--hours", type=float, default=FULL_S / 3600, help="how long it is watched (default: 2)")
    parser.add_argument(
        "--out", type=Path, default=Path("steady-output"), help="samples and result go into a folder of it"
    )
    arguments = parser.parse_args()
    mosquitto = find_mosquitto()
    if mosquitto is None:
        parser.error("the program mosquitto is missing: apt-get install mosquitto")
    began = dt.datetime.now(dt.UTC)
    # A folder of its own for each run: an earlier one may still be ending.
    out = (arguments.out / f"{began:%Y%m%d-%H%M%S}-{os.getpid()}").resolve()
    out.mkdir(parents=True)
    rig = out / "rig"

    def tell(text: str) -> None:
        print(text, flush=True)  # noqa: T201

    heading = f"{began:%Y-%m-%d %H:%M}, {platform.machine()}, {os.cpu_count()} cores, {platform.platform()}"
    tell(heading)
    try:
        with terminations_as_interrupts():
            found = run(rig, out / "samples.csv", mosquitto, Plan(3600 * arguments.hours), tell)
    except KeyboardInterrupt:
        tell(f"ended before its time; what was sampled is in {out / 'samples.csv'}")
        return 130
    text = "\n".join([found.table, *found.words, *found.faults, "FAILED" if found.faults else "good"])
    (out / "result.txt").write_text(f"{heading}\n{text}\n")
    tell(f"{text}\nwritten to {out}")
    if not found.faults:
        shutil.rmtree(rig)
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
