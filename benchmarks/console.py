"""The console in Chromium: how busy its page is, what it keeps in memory, how soon it shows, what it costs the service.

Method: one service process (SQLite file, logs as by default) with 10,000 devices, made by SQL, and its console.

- **Page.** A writer in a process of its own sends 1,000 readings a second, in batches of 100, of devices chosen at
  random. A tab shows the table of devices for ``--seconds`` (default 600), then a device's page for a tenth of it. How
  busy the main thread is: ``TaskDuration`` of Chromium's own ``Performance.getMetrics``, in the thread's CPU time, so
  that waiting for a core that others use does not count, over the time that passed.
  Memory is ``Runtime.getHeapUsage`` after a forced garbage collection, at the end of the first minute and at the end.
- **Scrolling.** The table of 100,000 devices is scrolled in 300 steps, one for each frame that Chromium draws (without
  a graphics card): by 120 pixels each, as a wheel does, and from its top to its end, as somebody does who drags the
  bar. A frame counts as late when more than 50 ms went by since the one before (a long task, as browsers call it).
  At the end the last row must be there.
- **First content.** ``first-contentful-paint`` of ten loads, each with an empty cache; the median counts.
- **Files.** All files of the console, compressed as they are served.
- **Service.** ``POST /sensor-data`` and a device's poll at full load (64 connections), in turns without a console and
  with three tabs that show the table; medians of ``--runs``. On a machine with fewer than four cores browser, load
  generator and service share them, and the rates say how. What counts there is the CPU that the consoles take from the
  service's one core: what a request costs more with them, times the requests in a second. A service at its limit serves
  that much less.

    python benchmarks/console.py [--seconds 600] [--runs 5] [--load-seconds 5] [--only-scrolling]

Exit codes: 0 the bars are reached, 1 one is not.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from playwright.sync_api import Browser, BrowserContext, CDPSession, Page

from benchmarks._load_client import load
from benchmarks.service_ingest import KEYS, cpu_s, machine, make_device, server
from benchmarks.service_scale import fill
from simulator.console.static_files import compressed_bytes
from tests.chromium import chromium, find_chromium

DEVICES, PER_SECOND, BATCH = 10_000, 1_000, 100
MANY, STEPS, WHEEL_PIXELS, LATE_MS, LATE_BAR = 100_000, 300, 120, 50.0, 0.02
BUSY_BAR, HEAP_BAR, PAINT_BAR_MS, FILES_BAR, SERVICE_BAR = 0.20, 1.10, 300.0, 250_000, 0.10
FIRST_S = 60.0
LOADS = 10
CONSOLES = 3
ENOUGH_CORES = 4

SERVICE = """
import sys
from pathlib import Path
from agent.wire.secret import Secret
from simulator.console.app import make_console
from simulator.service.config import ServiceConfig
from simulator.service.server import serve
config = ServiceConfig(data_dir=Path(sys.argv[1]), api_key="mk_benchmark", secret_key=Secret("msk_benchmark"),
                       rate_limit=0, keep_requests=1000, access_log="text", log_level="info")
serve(config, lambda service, url: print("ready", url, flush=True), make_console)
"""


def main() -> int:
    """The benchmark."""
    parser = argparse.ArgumentParser(description="The console in Chromium, and what it costs the service.")
    parser.add_argument("--seconds", type=float, default=600.0, help="that the table is looked at (default 600)")
    parser.add_argument("--runs", type=int, default=5, help="of the service, in turns (default 5)")
    parser.add_argument("--load-seconds", type=float, default=5.0, help="of each of them (default 5)")
    parser.add_argument("--only-scrolling", action="store_true", help="nothing but the table of 100,000 devices")
    options = parser.parse_args()
    if options.only_scrolling:
        return 0 if _scrolling() else 1
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        where = str(Path(folder) / "data")
        with server(SERVICE, where, log=Path(os.devnull)) as base_url:
            device_id = make_device(base_url)
        fill(where, DEVICES, DEVICES)
        base_url = stack.enter_context(server(SERVICE, where, log=Path(folder) / "access.log"))
        browser = stack.enter_context(chromium(find_chromium()))
        print(f"{machine()}; {browser.browser_type.name} {browser.version}; {dt.datetime.now(dt.UTC).date()}")
        passed = [_files(), _first_content(browser, base_url)]
        with _readings(base_url):
            passed += _page(browser, base_url, "table of devices", "/", options.seconds)
            passed += _page(browser, base_url, "a device", f"/console/devices/{device_id}", options.seconds / 10)
        passed += _service(browser, base_url, device_id, options.runs, options.load_seconds)
    passed.append(_scrolling())
    return 0 if all(passed) else 1


def _say(what: str, figure: str, bar: str, *, is_reached: bool) -> bool:
    print(f"{what:<44}{figure:>22}   bar {bar:<12}{'reached' if is_reached else 'MISSED'}", flush=True)
    return is_reached


def _files() -> bool:
    size = compressed_bytes()
    return _say("all files, compressed", f"{size / 1000:.0f} kB", "250 kB", is_reached=size <= FILES_BAR)


def _call(url: str, body: object = None, method: str | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {**KEYS, "content-type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def _enter(browser: Browser, base_url: str) -> BrowserContext:
    """A browser with a session."""
    context = browser.new_context(base_url=base_url, viewport={"width": 1280, "height": 800})
    link = _call(f"{base_url}/_emulator/console-links", method="POST")["url"]
    page = context.new_page()
    page.goto(link)
    page.close()
    return context


def _first_content(browser: Browser, base_url: str) -> bool:
    state = _enter(browser, base_url).storage_state()
    paints = []
    for _ in range(LOADS):
        context = browser.new_context(base_url=base_url, storage_state=state)
        page = context.new_page()
        page.goto("/")
        page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length > 0")
        paints.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
        context.close()
    median = statistics.median(paints)
    figure = f"{median:.0f} ms (to {max(paints):.0f})"
    return _say("first content, empty cache", figure, "300 ms", is_reached=median <= PAINT_BAR_MS)


SCROLL = """
([steps, pixels]) => new Promise((done) => {
  const box = document.querySelector('.grid-scroll');
  const gaps = []; let last = performance.now(); let step = 0;
  const next = (now) => {
    if (step > 0) gaps.push(now - last);
    last = now;
    if (step++ === steps) return done(gaps);
    box.scrollTop = pixels ? pixels * step : (box.scrollHeight - box.clientHeight) * step / steps;
    requestAnimationFrame(next);
  };
  requestAnimationFrame(next);
})
"""


def _scrolling() -> bool:
    """A table of 100,000 devices, by the wheel and by its bar."""
    with tempfile.TemporaryDirectory() as folder:
        where = str(Path(folder) / "data")
        with server(SERVICE, where, log=Path(os.devnull)) as base_url:
            make_device(base_url)
        fill(where, MANY, MANY)
        with server(SERVICE, where, log=Path(os.devnull)) as base_url, chromium(find_chromium()) as browser:
            page = _enter(browser, base_url).new_page()
            page.goto("/")
            page.wait_for_selector(".grid-row")
            by_wheel, by_bar = (page.evaluate(SCROLL, [STEPS, pixels]) for pixels in (WHEEL_PIXELS, 0))
            rows = page.get_attribute(".grid-scroll [role=table]", "aria-rowcount")
            page.wait_for_selector(f'.grid-scroll [aria-rowindex="{rows}"]:not(:has(.grid-waiting))')
    _frames("100,000 devices, dragged to the end", by_bar)
    return _frames("100,000 devices, by the wheel", by_wheel)


def _frames(what: str, gaps_ms: list[float]) -> bool:
    late = sum(gap > LATE_MS for gap in gaps_ms) / len(gaps_ms)
    figure = f"{late:.1%} late, p50 {statistics.median(gaps_ms):.0f} ms"
    return _say(what, figure, f"{LATE_BAR:.0%} late", is_reached=late <= LATE_BAR)


# --- the page ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _readings(base_url: str) -> Iterator[None]:
    """So many readings a second, for the length of the block."""
    context = multiprocessing.get_context("spawn")
    end = context.Event()
    writer = context.Process(target=_write, args=(base_url, end), daemon=True)
    writer.start()
    try:
        yield
    finally:
        end.set()
        writer.join(30)


def _write(base_url: str, end: Event) -> None:
    ids: list[str] = []
    query = "limit=1000"
    while len(ids) < DEVICES:
        page = _call(f"{base_url}/devices?{query}")
        ids += [device["device_id"] for device in page["data"]]
        if not page["has_more"]:
            break
        query = f"limit=1000&cursor={page['next_cursor']}"
    chosen = random.Random(1)
    due_s, sent = time.monotonic(), 0
    while not end.is_set():
        batch = [
            {"device_id": chosen.choice(ids), "sensor_data": {"temperature_celsius": 20 + number % 10, "level": sent}}
            for number in range(BATCH)
        ]
        _call(f"{base_url}/sensor-data", batch)
        sent += BATCH
        due_s += BATCH / PER_SECOND
        end.wait(max(0.0, due_s - time.monotonic()))


def _page(browser: Browser, base_url: str, name: str, path: str, seconds: float) -> list[bool]:
    context = _enter(browser, base_url)
    page = context.new_page()
    page.goto(path)
    page.get_by_text("Live", exact=True).wait_for()
    cdp = context.new_cdp_session(page)
    cdp.send("Performance.enable", {"timeDomain": "threadTicks"})
    first_s = min(FIRST_S, seconds / 2)
    page.wait_for_timeout(first_s * 1000)
    early, before_s, began_s = _heap(cdp), _task_s(cdp), time.monotonic()
    rates: list[str] = []
    until_s = time.monotonic() + seconds - first_s
    while time.monotonic() < until_s:
        page.wait_for_timeout(min(10.0, max(0.1, until_s - time.monotonic())) * 1000)
        rates.append(_readings_per_s(page))
    busy = (_task_s(cdp) - before_s) / (time.monotonic() - began_s)
    late = _heap(cdp)
    context.close()
    print(f"{name}: {seconds:.0f} s, {DEVICES:,} devices; the page itself counted {rates[len(rates) // 2]}")
    heap = f"{early / 1e6:.1f} -> {late / 1e6:.1f} MB"
    return [
        _say(f"{name}: main thread busy", f"{busy:.1%}", "20 %", is_reached=busy <= BUSY_BAR),
        _say(f"{name}: heap", heap, "+10 %", is_reached=late <= early * HEAP_BAR),
    ]


def _task_s(cdp: CDPSession) -> float:
    """The CPU that the main thread's tasks have taken so far, seconds."""
    metrics = {one["name"]: one["value"] for one in cdp.send("Performance.getMetrics")["metrics"]}
    return float(metrics["TaskDuration"])


def _heap(cdp: CDPSession) -> float:
    cdp.send("HeapProfiler.collectGarbage")
    return float(cdp.send("Runtime.getHeapUsage")["usedSize"])


def _readings_per_s(page: Page) -> str:
    return str(page.evaluate("document.querySelector('.live-rates')?.textContent.trim() ?? 'nothing'"))


# --- the service ------------------------------------------------------------------------------------------------


def _service(browser: Browser, base_url: str, device_id: str, runs: int, seconds: float) -> list[bool]:
    body = json.dumps({"device_id": device_id, "sensor_data": {"temperature_c": 21.5, "humidity": 40.25}}).encode()
    asked = {
        "POST /sensor-data": (f"{base_url}/sensor-data", body),
        "poll": (f"{base_url}/devices/{device_id}/commands?status=open", None),
    }
    rates: dict[tuple[str, int], list[float]] = {}
    cpu_us: dict[tuple[str, int], list[float]] = {}
    for url, sent in asked.values():
        load(url, headers=KEYS, body=sent, seconds=1)
    for _ in range(runs):
        for consoles in (0, CONSOLES):
            with _tabs(browser, base_url, consoles):
                for name, (url, sent) in asked.items():
                    before_s = cpu_s(base_url)
                    result = load(url, headers=KEYS, body=sent, seconds=seconds)
                    rates.setdefault((name, consoles), []).append(result.per_second)
                    used_us = (cpu_s(base_url) - before_s) / result.requests * 1e6
                    cpu_us.setdefault((name, consoles), []).append(used_us)
    passed = []
    for name in asked:
        none, three = (statistics.median(rates[name, consoles]) for consoles in (0, CONSOLES))
        lean, full = (statistics.median(cpu_us[name, consoles]) for consoles in (0, CONSOLES))
        print(
            f"{name}: {none:,.0f}/s without, {three:,.0f}/s with {CONSOLES} consoles; {lean:.0f} and {full:.0f} us CPU"
        )
        has_cores = (os.cpu_count() or 1) >= ENOUGH_CORES
        cost, kind = (1 - three / none, "rate lost") if has_cores else ((full - lean) * three / 1e6, "of a core")
        passed.append(
            _say(f"{name}: {CONSOLES} consoles, {kind}", f"{cost:.1%}", "10 %", is_reached=cost <= SERVICE_BAR)
        )
    return passed


@contextlib.contextmanager
def _tabs(browser: Browser, base_url: str, count: int) -> Iterator[None]:
    contexts = [_enter(browser, base_url) for _ in range(count)]
    for context in contexts:
        page = context.new_page()
        page.goto("/")
        page.get_by_text("Live", exact=True).wait_for()
    try:
        yield
    finally:
        for context in contexts:
            context.close()


if __name__ == "__main__":
    sys.exit(main())
