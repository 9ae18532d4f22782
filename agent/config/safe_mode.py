"""Safe mode: the agent starts without plug-ins and sensors after several failed starts."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agent.config.section import Seconds, Section, key


class SafeModeConfig(Section):
    """After so many failed starts in a row the agent starts without plug-ins and sensors."""

    starts: Annotated[int, Field(ge=0, le=100)] = key(
        "After so many starts in a row that ended before healthy_after_s, the next one is in safe mode: only the "
        "handlers that mend, no plug-ins, no executables, no sensors. 0 switches safe mode off.",
        unit="starts",
        why="A plug-in that takes the agent down would otherwise take the way to mend it along.",
        default=5,
    )
    window_s: Seconds = key(
        "Of one boot only starts of so long count; of an earlier boot each one counts.", unit="s", default=900.0
    )
    healthy_after_s: Seconds = key(
        "An agent that ran this long is healthy, and the starts before it are forgotten.", unit="s", default=60.0
    )
    first_s: Seconds = key(
        "How long safe mode lasts before the agent tries all of itself again; twice as long each further time.",
        unit="s",
        why="Shorten it where the cause may pass by itself, such as a sensor's bus that hangs.",
        default=600.0,
    )
    most_s: Seconds = key("The longest that safe mode lasts before the next try.", unit="s", default=86400.0)
