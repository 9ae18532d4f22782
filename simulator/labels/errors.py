"""What can go wrong with labels."""

from __future__ import annotations

from agent.errors import Advice, AgentError


class LabelError(AgentError):
    """Labels cannot be made or read from what was given: one line that names the fix."""

    advice = Advice.EXIT
