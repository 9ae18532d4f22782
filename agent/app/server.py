"""What the agent found out about its server, as status and doctor read it."""

from __future__ import annotations

from collections.abc import Mapping

from agent.config import AgentConfig
from agent.frozen import dataclass
from agent.wire.server_findings import SETTING, ServerFindings, describe, read_findings


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The server as it was found.

    Attributes:
        words: one phrase each, to follow on ``this server:``.
        findings: the same, as the journal has it.
    """

    words: tuple[str, ...]
    findings: ServerFindings


def findings_of(settings: Mapping[str, str], config: AgentConfig) -> ServerFindings | None:
    """What the journal's settings hold about the server that is configured now; None when they hold nothing."""
    found = read_findings(settings.get(SETTING))
    if config.service is None or found is None or found.address != config.service.base_url:
        return None
    return found


def look_at_server(settings: Mapping[str, str], config: AgentConfig) -> ServerStatus | None:
    """The findings with their words."""
    found = findings_of(settings, config)
    if config.service is None or found is None:
        return None
    return ServerStatus(describe(found, config.service.dialect.dialect()), found)
