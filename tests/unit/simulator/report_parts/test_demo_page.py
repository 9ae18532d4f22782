from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from simulator.fleet.signals.base import read_all
from simulator.fleet.signals.climate import CLIMATE
from simulator.report_parts.demo_page import axis_ticks, demo_page
from simulator.report_parts.page import duration_text, offset_text, percent_of
from simulator.report_parts.values import (
    Chart,
    Claim,
    CommandRow,
    DemoStory,
    DeviceCard,
    Event,
    Figure,
    Mark,
    Outage,
    Series,
    Tone,
)

ATTACK = "<script>alert('x')</script><img src=x onerror=alert(1)>\"'&{{7*7}}"


def tiny_png() -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")


def a_story(*, devices: int = 20, label_png: bytes | None = None) -> DemoStory:
    names = ["real-agent", *(f"virtual-{number:02d}" for number in range(2, devices + 1))]
    commands: list[CommandRow] = []
    for index, name in enumerate(names):
        at = 7 + index * 0.12
        commands.append(
            CommandRow(name, "ping", '{"command":"ping"}', "succeeded", '{"pong":true}', at, at + 0.1, at + 0.3, True)
        )
        status = ("rejected", "failed", "succeeded")[index % 3]
        commands.append(CommandRow(name, "slow", "{}", status, "no", at + 4, at + 4.1, at + 6 + index % 4, True))
    walks = tuple(
        Series(
            name,
            tuple((t / 2, read_all(CLIMATE, 7, name, 1.8e9 + t / 2)["temperature_celsius"]) for t in range(10, 56)),
        )
        for name in names[1:]
    )
    return DemoStory(
        held=True,
        began_at="2026-01-01T12:00:00.000Z",
        duration_s=28.4,
        machine="Linux 6.1, 2 cores, Python 3.11.7",
        version="0.1.0",
        figures=(
            Figure("20", "devices", "1 real process, 19 virtual"),
            Figure("84", "commands", "each ended once"),
            Figure("412", "readings", "each stored once"),
            Figure("112 ms", "median round trip", "sent to result"),
            Figure("28.4 s", "from nothing to proven"),
        ),
        claims=tuple(
            Claim(name, True, "20 texts", "20 read, 0 missing, 0 foreign")
            for name in (
                "Every label reads back from its PNG file",
                "Each scanned device is registered exactly once",
                "Each command ended in the right state",
                "No command is listed twice, and none that nobody sent",
                "Each command took effect exactly as often as promised",
                "Each reading a virtual device sent is stored once",
                "The real agent's counters agree with the service's",
                "The removed device is gone",
            )
        ),
        events=(
            Event(0.0, "service", "started on http://127.0.0.1:40123", Tone.ACCENT),
            Event(1.2, "labels", "20 labels made, and read back from their PNG files", Tone.GOOD),
            Event(12.1, "real-agent", "killed with SIGKILL in the middle of two commands", Tone.BAD),
            Event(15.0, "real-agent", "started again", Tone.WARN),
            Event(27.0, "proofs", "8 of 8 held", Tone.GOOD),
        ),
        marks=(Mark(12.1, "SIGKILL"), Mark(15.0, "started again"), Mark(24.0, "one device removed")),
        outages=(
            Outage("real-agent", 12.1, 15.0, "killed with SIGKILL"),
            Outage("virtual-03", 9.0, 16.0, "switched off"),
        ),
        charts=(
            Chart("Temperature, virtual devices", "°C", walks, crowd=True),
            Chart("Load of this machine", "", (Series("load_1m", tuple((t, 0.4 + t / 90) for t in range(5, 28))),), 2),
        ),
        commands=tuple(commands),
        devices=tuple(
            DeviceCard(
                name,
                f"SIM-{index:06d}",
                f"0197-{index}",
                "virtual" if index else "real agent",
                "online",
                20,
                4,
                label_png or tiny_png(),
            )
            for index, name in enumerate(names)
        ),
        files=(("sheet.pdf", "labels to print"), ("proofs.json", "the same for machines")),
    )


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta", "img", "link", "br"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open
        assert self.open.pop() == tag


def plot_data(text: str) -> dict:
    found = re.search(r'<script type="application/json" id="report-data">(.*?)</script>', text, re.DOTALL)
    assert found
    return json.loads(found.group(1))


def test_the_page_loads_nothing_from_anywhere():
    text = demo_page(a_story())
    page = Page(text)
    assert page.open == []
    for tag, attributes in page.tags:
        assert tag not in {"link", "iframe", "object", "embed", "base"}
        if tag == "script":
            assert "src" not in attributes
        if tag == "img":
            assert (attributes["src"] or "").startswith("data:image/png;base64,")
    assert not re.search(r"url\(|@import", re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL))
    assert "default-src &#39;none&#39;" in text


def test_the_policy_lets_run_only_the_packages_own_scripts():
    text = demo_page(a_story())
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == 2
    import hashlib

    for script in scripts:
        assert "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in text.replace(
            "&#43;", "+"
        )


def test_text_from_outside_cannot_become_markup():
    story = a_story()
    command = replace(story.commands[0], title=ATTACK, payload=ATTACK, outcome=ATTACK, status=ATTACK, device=ATTACK)
    text = demo_page(
        replace(
            story,
            machine=ATTACK,
            events=(Event(1.0, ATTACK, ATTACK),),
            claims=(Claim(ATTACK, False, ATTACK, ATTACK, (ATTACK,)),),
            marks=(Mark(1.0, ATTACK),),
            outages=(Outage("virtual-02", 1, 2, ATTACK),),
            charts=(Chart(ATTACK, ATTACK, (Series(ATTACK, ((1.0, 2.0),)),)),),
            commands=(command,),
            devices=(replace(story.devices[0], name=ATTACK, identifier=ATTACK, state=ATTACK),),
            files=((ATTACK, ATTACK),),
        )
    )
    page = Page(text)
    assert page.open == []
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert not any("onerror" in attributes for _, attributes in page.tags)
    assert plot_data(text)["charts"][0]["series"][0]["name"] == ATTACK


def test_the_verdict_follows_the_proofs():
    good = demo_page(a_story())
    assert "Nothing was lost" in good
    assert "8 of 8 proofs held" in " ".join(good.split())
    story = a_story()
    failed = replace(story.claims[0], held=False, details=("virtual-03: 1 lost (17)",))
    bad = demo_page(replace(story, held=False, claims=(failed, *story.claims[1:])))
    assert "Not everything held." in bad
    assert "7 of 8 proofs held" in " ".join(bad.split())
    assert "virtual-03: 1 lost (17)" in bad


def test_every_command_device_and_reading_is_on_the_page():
    story = a_story()
    text = demo_page(story)
    assert text.count('class="bar ') == len(story.commands)
    assert text.count("<tr>") == len(story.commands) + 1
    assert text.count("<img ") == len(story.devices)
    sent = plot_data(text)["charts"][0]["series"]
    assert [len(line["x"]) for line in sent] == [len(line.points) for line in story.charts[0].series]


def test_a_command_that_never_came_back_and_an_empty_story_are_still_a_page():
    story = a_story()
    lost = replace(story.commands[0], delivered_s=None, completed_s=None, as_expected=False, status="queued")
    assert "not as expected" in demo_page(replace(story, commands=(lost,)))
    empty = replace(story, commands=(), charts=(Chart("none", "", ()),), devices=(), events=(), marks=(), claims=())
    assert "no readings" in demo_page(empty)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "\u2013"), (0.0123, "12 ms"), (3.414, "3.41 s"), (72.9, "1 min 12 s")],
)
def test_durations_read_as_a_person_says_them(seconds, text):
    assert duration_text(seconds) == text


def test_offsets_and_percentages_stay_in_bounds():
    assert offset_text(3.4) == "+3.40 s"
    assert percent_of(-1, 10) == "0.000%"
    assert percent_of(11, 10) == "100.000%"
    assert percent_of(1, 0) == "0.000%"


@pytest.mark.parametrize("duration_s", [0.2, 3, 28.4, 59, 600])
def test_an_axis_has_round_ticks_inside_of_it(duration_s):
    ticks = axis_ticks(duration_s)
    assert ticks[0] == 0
    assert ticks[-1] < duration_s
    assert len(ticks) <= 9
