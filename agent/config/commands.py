"""The section ``commands``: which are taken, from whom, and how they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from agent.config.section import Name, Seconds, Section


class PollConfig(Section):
    """How often the agent asks for commands where the service cannot hold a poll open.

    Attributes:
        fast_s: while commands come in.
        idle_s: when nothing has come for long.
        spread_s: the first contact comes within this after the start, at a moment that follows from the device id.
    """

    fast_s: Seconds = 2.0
    idle_s: Seconds = 60.0
    spread_s: Annotated[float, Field(ge=0, le=3600)] = 2.0

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.fast_s > self.idle_s:
            raise ValueError("fast_s must not be above idle_s")
        return self


class HandlerConfig(Section):
    """One handler, by its name; without ``timeout_s`` its own counts."""

    enabled: bool = True
    timeout_s: Seconds | None = None
    settings: dict[str, Any] = Field(default_factory=dict)


class SigningConfig(Section):
    """Commands that carry their sender's signature (docs/security.md, "Signed commands").

    Attributes:
        mode: ``off`` rejects signed commands, ``accept`` takes them too, ``require`` takes nothing else.
        trusted_keys: files with public keys.
        require_for: handlers whose commands must be signed although the mode is ``accept``.
    """

    mode: Literal["off", "accept", "require"] = "off"
    trusted_keys: tuple[Path, ...] = ()
    require_for: tuple[Name, ...] = ()

    @model_validator(mode="after")
    def _has_keys(self) -> Self:
        if self.mode != "off" and not self.trusted_keys:
            raise ValueError(
                f"commands.signing.mode is {self.mode!r} and no key is trusted: name at least one public key file in "
                "commands.signing.trusted_keys (device-agent keys make writes one)"
            )
        if self.mode == "off" and self.require_for:
            raise ValueError(
                "commands.signing.require_for has no effect while commands.signing.mode is off: set mode to accept"
            )
        return self


class CommandsConfig(Section):
    """Commands: which are taken and how they run.

    Attributes:
        handler_key: the member of ``command_payload`` that names the handler; the specification leaves it open.
        first_contact: whether commands from before this device's first contact run, which nobody calls open.
        long_poll_s: how long the service may hold one poll open; 0 never.
        handlers: by name; a handler that is not here runs with its defaults.
    """

    handler_key: Annotated[str, Field(min_length=1, max_length=64)] = "command"
    first_contact: Literal["skip-history", "all"] = "skip-history"
    poll: PollConfig = Field(default_factory=PollConfig)
    long_poll_s: Annotated[float, Field(ge=0, le=30)] = 25.0
    signing: SigningConfig = Field(default_factory=SigningConfig)
    handlers: dict[str, HandlerConfig] = Field(default_factory=dict)
