"""The ``Date`` of an answer is the service's clock as the answer goes out."""

from __future__ import annotations

import threading
from email.utils import parsedate_to_datetime

import httpx
import pytest

from tests.service_running import T0_MS, Bench, client, running


@pytest.fixture
def bench():
    with running() as bench:
        yield bench


def date_ms(answer: httpx.Response) -> int:
    dates = answer.headers.get_list("date")
    assert len(dates) == 1
    return int(parsedate_to_datetime(dates[0]).timestamp() * 1000)


def test_each_answer_has_the_time_of_the_services_clock(bench: Bench) -> None:
    assert date_ms(bench.http.get("/devices")) == T0_MS
    bench.clock.advance(3600)
    assert date_ms(bench.http.get("/devices")) == T0_MS + 3_600_000
    assert date_ms(bench.http.get("/devices/none")) == T0_MS + 3_600_000
    assert date_ms(httpx.get(f"{bench.service.base_url}/devices", trust_env=False)) == T0_MS + 3_600_000


def test_a_held_poll_has_the_time_of_its_end_and_not_of_its_beginning(bench: Bench) -> None:
    device = bench.device()
    answers: list[httpx.Response] = []

    def poll() -> None:
        with client(bench.service) as http:
            etag = http.get(f"/devices/{device}/commands", params={"status": "open"}).headers["etag"]
            held.set()
            answers.append(
                http.get(
                    f"/devices/{device}/commands",
                    params={"status": "open", "wait": 30},
                    headers={"if-none-match": etag},
                )
            )

    held = threading.Event()
    thread = threading.Thread(target=poll)
    thread.start()
    assert held.wait(60)
    bench.clock.advance(20)
    bench.send(device)
    thread.join(60)
    assert date_ms(answers[0]) == T0_MS + 20_000
