"""``python recorded_agent.py run --config FILE``: a real agent that also writes its promises down."""

from __future__ import annotations

from agent.cli import main
from tests.fault.acknowledged import write_promises_down

if __name__ == "__main__":
    write_promises_down()
    main()
