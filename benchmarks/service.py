"""Figure S1 and what else a user of the local service waits for.

The service is started as its users start it (``fleet-simulator service``), with the request log on and no quota, in a
process of its own; the peer is FastAPI answering a constant, one uvicorn worker (uvloop, httptools). wrk holds 64
keep-alive connections. Runs are interleaved, the median of each server counts. At the end the rows in the file are
counted.

=====================  =====================================================================================
S1                     ``POST /sensor-data``, stored, beside FastAPI's constant; bar 0.5
polls                  ``GET /devices/{id}/commands?status=open`` of a device without commands
start                  from the command to the first answer of ``/_emulator/health``
memory                 resident set after the start, and after the load
=====================  =====================================================================================

    python -m benchmarks.service [--seconds 3] [--runs 5]

Exit codes: 0 the bar is reached, 1 it is not, 2 wrk is missing, 4 rows are missing.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from benchmarks import _rig as rig
from benchmarks._peers import Load, constant, has_wrk, run_wrk, show

BAR = 0.5
STORED, POLL, FASTAPI = "service, stored", "service, poll", "FastAPI, constant"

CONSTANT = """
import sys, uvicorn
from fastapi import FastAPI, Request
ANSWER = {"id": "019b76da-a800-7000-8000-000000000006", "device_id": "019b76da-a800-7000-8000-000000000002",
          "sensor_data": {"temperature_c": 21.5, "humidity": 40.25},
          "recorded_at": "2026-01-01T00:00:00.000Z", "received_at": "2026-01-01T00:00:00.000Z"}
app = FastAPI()
@app.post("/sensor-data", status_code=201)
async def post(request: Request) -> dict:
    await request.body()
    return ANSWER
config = uvicorn.Config(app, port=int(sys.argv[1]), loop="uvloop", http="httptools", access_log=False)
uvicorn.Server(config).run()
"""


def reading(device_id: str) -> str:
    """A reading of two values, as it goes over the wire."""
    return json.dumps({"device_id": device_id, "sensor_data": {"temperature_c": 21.5, "humidity": 40.25}})


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description="Figure S1: stored readings beside a constant answer.")
    parser.add_argument("--seconds", type=float, default=3, help="length of one run")
    parser.add_argument("--runs", type=int, default=5, help="runs of each server")
    given = parser.parse_args()
    if not has_wrk():
        return 2
    print(f"S1: 64 connections of wrk\n{rig.machine()}\n")
    seconds, runs = given.seconds, dict[str, list[Load]]()
    with tempfile.TemporaryDirectory() as name, rig.service(Path(name)) as own:
        fresh_bytes = rig.resident_bytes(own.pid)
        [device_id] = rig.make_devices(own.url)
        poll, post = f"{own.url}/devices/{device_id}/commands?status=open", constant(rig.KEYS, reading(device_id))
        port = rig.free_port()
        with rig.server([sys.executable, "-c", CONSTANT, str(port)], port) as fastapi:
            asked = {
                STORED: (f"{own.url}/sensor-data", post),
                FASTAPI: (f"{fastapi.url}/sensor-data", post),
                POLL: (poll, constant(rig.KEYS, None)),
            }
            for _ in range(given.runs + 1):
                for who, (url, script) in asked.items():
                    runs.setdefault(who, []).append(run_wrk(url, script, seconds=seconds))
        answered = sum(run.requests for run in runs[STORED])
        warm = {who: found[1:] for who, found in runs.items()}
        warm["poll, 8 connections"] = [run_wrk(poll, constant(rig.KEYS, None), connections=8, seconds=seconds)]
        rate = show(warm)
        requests = sum(run.requests for who in (STORED, POLL) for run in runs[who])
        sizes = f"{fresh_bytes / 1e6:.0f} MB, after {requests:,} requests {rig.resident_bytes(own.pid) / 1e6:.0f} MB"
        print(f"start {own.start_s:.2f} s; memory {sizes}")
        rows = rig.count_readings(Path(name))
    is_kept = rig.judge("x FastAPI's constant", rate[STORED] / rate[FASTAPI], BAR, is_least=True)
    print(f"answered {answered:,} readings, rows in the file {rows:,}")
    if rows < answered:
        print("rows are missing")
        return 4
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
