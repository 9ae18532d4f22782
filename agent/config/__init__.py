"""The configuration: defaults < file < environment, secrets only from files. Every fault in one message."""

from __future__ import annotations

from agent.config.credentials import Credentials, read_credentials
from agent.config.load import DEFAULT_PATH, LoadedConfig, load_config
from agent.config.model import AgentConfig

__all__ = ["DEFAULT_PATH", "AgentConfig", "Credentials", "LoadedConfig", "load_config", "read_credentials"]
