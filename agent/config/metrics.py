"""The section ``metrics``: figures for Prometheus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from agent.config.section import Host, Section, is_this_machine, key


class MetricsConfig(Section):
    """Where the figures are served in the text format of Prometheus (``GET /metrics``); needs the extra ``metrics``."""

    port: Annotated[int, Field(ge=0, le=65535)] | None = key(
        "Serve them on this TCP port; 0 takes a free one, which the log names.", default=None, example=9465
    )
    host: Host = key(
        "Address to listen on.",
        why="They hold no secret, but say what the device does and when it can be reached.",
        default="127.0.0.1",
    )
    allow_remote: bool = key(
        "Allow a host that others than this machine can reach.",
        why="There is no password and no TLS: only on a network of your own.",
        default=False,
    )
    socket: Path | None = key(
        "Serve them on this Unix socket instead, for a collector on this machine.",
        why="The mode of a file decides who reads them, and no port is open.",
        default=None,
        example="/run/device-agent/metrics.sock",
    )
    socket_mode: Annotated[str, Field(pattern=r"^[0-7]{3}$")] = key(
        "Mode of that socket, as chmod takes it.", default="660"
    )

    @field_validator("socket_mode", mode="before")
    @classmethod
    def _may_be_a_number(cls, value: object) -> object:
        # YAML takes 660 for a number, and 0660 for one with a decimal point.
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and value == int(value)
        return f"{int(value):03d}" if is_number and isinstance(value, int | float) else value

    @model_validator(mode="after")
    def _has_one_place(self) -> Self:
        if (self.port is None) == (self.socket is None):
            raise ValueError("metrics needs either a port or a socket: set metrics.port or metrics.socket, not both")
        if self.port is not None and not self.allow_remote and not is_this_machine(self.host):
            raise ValueError(
                f"metrics.host {self.host!r} can be reached by others than this machine: use 127.0.0.1, or set "
                "metrics.allow_remote: true on a network of your own"
            )
        if self.socket is not None and not self.socket.is_absolute():
            raise ValueError("metrics.socket must be a full path, such as /run/device-agent/metrics.sock")
        return self
