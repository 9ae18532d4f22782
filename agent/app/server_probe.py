"""``device-agent check --server``: a look at the configured server, with the agent's own credentials."""

from __future__ import annotations

from collections.abc import Mapping

from agent.app.client import make_credential
from agent.config import AgentConfig, read_credentials
from agent.errors import ConfigurationError
from agent.wire.probe.line import ProbeLine
from agent.wire.probe.look import look
from agent.wire.probe.report import ProbeReport
from agent.wire.trust import service_trust


def probe_server(config: AgentConfig, environ: Mapping[str, str]) -> ProbeReport:
    """Look at the server without changing anything there, and without taking a command from it.

    Args:
        config: which server, and as whom.
        environ: for systemd's credentials.

    Raises:
        ConfigurationError: there is no service, or the credentials or certificates cannot be used.
        TransportError: the server gave no answer.
    """
    service = config.service
    if service is None:
        raise ConfigurationError(["service: there is none to look at; commands and readings go through the broker"])
    credential = make_credential(config, service, read_credentials(config.auth, environ))
    trust = None if service.ca_file is None else service_trust(service.ca_file)
    with ProbeLine(service.base_url, credential, timeout_s=service.timeout_s, trust=trust) as line:
        notes = look(line, device_id=config.device.device_id, dialect=service.dialect.dialect())
        return notes.report(may_write=False)
