"""The command line of the service."""

from __future__ import annotations

import subprocess
import sys


def test_help_and_wrong_options_need_none_of_the_services_libraries():
    program = "import sys, simulator.service.cli; print(sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.split("'"))
    assert "click" in loaded
    assert not {"sqlalchemy", "alembic", "uvicorn", "starlette"} & loaded
