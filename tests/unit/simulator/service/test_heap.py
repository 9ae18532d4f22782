"""A process of the service keeps its garbage collections short."""

from __future__ import annotations

import subprocess
import sys

SERVICE = """
import gc, os, signal
from simulator.service.config import ServiceConfig
from simulator.service.server import serve

def ready(service, url):
    print(gc.get_freeze_count(), gc.get_threshold()[0], flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

serve(ServiceConfig(), ready)
"""


def test_once_it_is_ready_the_collector_leaves_alone_what_stays():
    done = subprocess.run([sys.executable, "-c", SERVICE], capture_output=True, text=True, timeout=120, check=True)
    frozen, threshold = map(int, done.stdout.split())
    assert frozen > 10_000
    assert threshold == 10_000
