"""The section ``metrics``: figures for Prometheus."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from agent.config.section import Host, Section, is_this_machine, key


class MetricsConfig(Section):
    """Where the figures are served in the text format of Prometheus (``GET /metrics``); needs the extra ``metrics``."""

    port: Annotated[int, Field(ge=0, le=65535)] = key(
        "Serve them on this TCP port; 0 takes a free one, which the log names.", default=9465
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

    @model_validator(mode="after")
    def _is_reached_as_wanted(self) -> Self:
        if not self.allow_remote and not is_this_machine(self.host):
            raise ValueError(
                f"metrics.host {self.host!r} can be reached by others than this machine: use 127.0.0.1, or set "
                "metrics.allow_remote: true on a network of your own"
            )
        return self
