"""The configuration: defaults < file < environment, secrets only from files. Every fault in one message."""

from __future__ import annotations

from agent.config.commands import CommandsConfig, HandlerConfig, PollConfig
from agent.config.credentials import Credentials, read_credentials
from agent.config.load import DEFAULT_PATH, LoadedConfig, load_config
from agent.config.model import (
    AgentConfig,
    AuthConfig,
    DeviceConfig,
    LoggingConfig,
    OutboxConfig,
    ReportConfig,
    SensorConfig,
    ServiceConfig,
)

__all__ = [
    "DEFAULT_PATH",
    "AgentConfig",
    "AuthConfig",
    "CommandsConfig",
    "Credentials",
    "DeviceConfig",
    "HandlerConfig",
    "LoadedConfig",
    "LoggingConfig",
    "OutboxConfig",
    "PollConfig",
    "ReportConfig",
    "SensorConfig",
    "ServiceConfig",
    "load_config",
    "read_credentials",
]
