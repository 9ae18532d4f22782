"""Write the pictures of the fleet in docs/: ``make pictures``. The run on them never took place: it is the tests' own.

Needs chromium beside what ``make setup`` installs.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from PIL import Image
from rich.console import Console

from simulator.fleet.record import RunRecord, Second
from simulator.fleet.report.folder import RunFolder
from simulator.fleet.report.live_screen import ScreenState, frame
from simulator.fleet.report.making import make_reports
from simulator.fleet.report.run_status import (
    RunHead,
    RunStatus,
    StreamSoFar,
    WorkerState,
    WorkerStatus,
    spans_under_way,
)
from tests.chromium import chromium
from tests.fleet_runs import Shape, a_run

ROOT: Final = Path(__file__).resolve().parents[1]
IMAGES: Final = ROOT / "docs" / "images"
_SHAPE: Final = Shape(duration_s=240)
_MOMENT: Final = 112
_WIDTH, _HEIGHT = 140, 36


def write_pictures(executable: str) -> list[Path]:
    """The live view in the middle of a fault, and the top of the page."""
    record, seconds = a_run(_SHAPE)
    with tempfile.TemporaryDirectory() as name, chromium(executable) as browser:
        folder = Path(name) / "run"
        with RunFolder(folder) as run:
            for second in seconds:
                run.append(second)
            run.finish(record)
        page = browser.new_page(viewport={"width": 1180, "height": 1560})
        page.goto(make_reports(folder).page.as_uri())
        page.locator("#thresholds").evaluate("part => part.remove()")
        report = _kept("fleet-report.png", page.screenshot(), 1180)
        page.set_content(f"<body style='margin:0'>{_live(record, seconds)}</body>")
        live = _kept("fleet-live.png", page.locator("svg").screenshot(), 1100)
    return [live, report]


def _live(record: RunRecord, seconds: list[Second]) -> str:
    head = RunHead(
        record.name,
        record.level,
        record.transport,
        record.target,
        record.devices,
        2,
        record.phases,
        record.faults,
        record.duration_s,
    )
    picture = ScreenState(head)
    for second in seconds[:_MOMENT]:
        picture.window.take(second)
    workers = tuple(WorkerStatus(number, WorkerState.RUNNING, 5000, 61 - number * 3) for number in (0, 1))
    picture.standing = RunStatus(
        spans_under_way(record.phases, _MOMENT)[0],
        "online >= 99%",
        spans_under_way(record.faults, _MOMENT),
        workers,
        {"readings": StreamSoFar(16_240, 16_228, 12), "commands": StreamSoFar(120, 119, 1)},
    )
    picture.notes = [
        ("cyan", "   0:30  phase hold begins"),
        ("yellow", "   1:36  fault disconnect_storm begins: 5,000 devices"),
    ]
    console = Console(width=_WIDTH, record=True, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(frame(picture, _WIDTH, _HEIGHT))
    return console.export_svg(title="fleet-simulator run steady-10k.yaml")


def _kept(name: str, png: bytes, width: int) -> Path:
    """The picture in few colours, which is a third of its size."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    picture = picture.resize((width, round(picture.height * width / picture.width)), Image.Resampling.LANCZOS)
    path = IMAGES / name
    picture.quantize(160, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(path, optimize=True)
    return path


if __name__ == "__main__":
    found = shutil.which("chromium")
    if found is None:
        sys.exit("error: the program chromium is missing: apt-get install chromium")
    for written in write_pictures(found):
        print(f"{written.relative_to(ROOT)}: {written.stat().st_size} bytes")
