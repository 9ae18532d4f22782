"""A service that is asked for open commands and has words of its own for them."""

from __future__ import annotations

import pytest

from agent.wire.secret import Secret
from simulator.service.clock import SystemClock
from tests.support.variants import running_as, variant
from tests.system.agent_bench import API_KEY, SECRET_KEY, AgentBench, wait_until

pytestmark = pytest.mark.long


@pytest.mark.timeout(300)
@pytest.mark.parametrize("words", ["own", "none", "number"])
def test_what_a_server_lists_as_open_runs_under_whatever_word_though_it_was_sent_before_the_first_poll(tmp_path, words):
    with running_as(
        variant("complete", status_words=words), clock=SystemClock(), api_key=API_KEY, secret_key=Secret(SECRET_KEY)
    ) as service:
        bench = AgentBench(tmp_path, service.service.base_url)
        try:
            sent = service.send(bench.device_id)
            bench.start()
            wait_until(lambda: service.command(bench.device_id, sent)["status"] == "succeeded")
        finally:
            bench.close()
