"""``device-agent`` for which hours are seconds: its results are put aside soon, and what is offered is asked anew."""

from __future__ import annotations

from agent.adapters import discovery
from agent.cli import main
from agent.core import unreported

if __name__ == "__main__":
    unreported.LIMITS[unreported.ReportFault.NO_PLACE] = unreported.TriesLimit(2, 0.0)
    discovery.REFRESH_S = 0.5  # type: ignore[misc]  # what the product keeps for an hour
    main()
