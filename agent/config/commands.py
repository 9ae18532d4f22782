"""The section ``commands``: which are taken, from whom, and how they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from agent.config.section import Name, Seconds, Section, key


class PollConfig(Section):
    """How often the agent asks for commands where the service cannot hold a poll open."""

    fast_s: Seconds = key(
        "Interval while commands come in.", unit="s", why="How fast a conversation of commands feels.", default=2.0
    )
    idle_s: Seconds = key(
        "Interval when nothing has come for long.",
        unit="s",
        why="All devices of a key share its quota: N devices at one poll in T seconds are 60 N / T requests a minute. "
        "Above 120 the service shows the device as offline between polls.",
        default=60.0,
    )

    spread_s: Annotated[float, Field(ge=0, le=3600)] = key(
        "After the start the first contact comes within this, at a moment that follows from the device id.",
        unit="s",
        why="A fleet that lost its power comes back in the same second; raise it with the size of the fleet.",
        default=2.0,
    )

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.fast_s > self.idle_s:
            raise ValueError("fast_s must not be above idle_s")
        return self


class HandlerConfig(Section):
    """One handler, by its name."""

    enabled: bool = key("False switches the handler off; its commands are then rejected.", default=True)
    timeout_s: Seconds | None = key(
        "How long one run may take, then the command fails with 'timeout'. Default: the handler's own.",
        unit="s",
        default=None,
        example=30,
    )
    settings: dict[str, Any] = key(
        "The handler's own settings; device-agent handlers shows the handlers.", default_factory=dict
    )


class SigningConfig(Section):
    """Commands that carry their sender's signature (docs/security.md, "Signed commands")."""

    mode: Literal["off", "accept", "require"] = key(
        "'off' rejects signed commands, 'accept' takes them beside unsigned ones, 'require' takes nothing else.",
        why="With 'require' neither the service nor a broker nor a gateway can make this device do anything: only who "
        "holds a trusted key can. Needs the extra: pip install '.[device]' in a clone of device-agent.",
        default="off",
    )
    trusted_keys: tuple[Path, ...] = key(
        "Files with the public keys whose commands are taken, as device-agent keys make writes them.",
        why="Two of them while one key takes over from the other.",
        default=(),
    )
    require_for: tuple[Name, ...] = key(
        "Handlers whose commands must be signed although mode is 'accept'.",
        why="To sign only what opens a door or restarts the device.",
        default=(),
    )

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
    """Commands: which are taken and how they run."""

    handler_key: Annotated[str, Field(min_length=1, max_length=64)] = key(
        "The member of command_payload that names the handler.",
        why="The specification leaves the keys inside command_payload to caller and firmware; set it to what your "
        "callers already send.",
        default="command",
    )
    first_contact: Literal["skip-history", "all"] = key(
        "What to do with commands that were sent before this device's first contact, over HTTP or MQTT, and that the "
        "service does not itself call open: skip-history runs none, all runs everything.",
        why="A new device must not open a door for last week's command.",
        default="skip-history",
    )
    poll: PollConfig = key("How often to ask.", default_factory=dict, validate_default=True)
    long_poll_s: Annotated[float, Field(ge=0, le=30)] = key(
        "How long the service may hold one poll open when it offers to, so that commands arrive at once; 0 never.",
        unit="s",
        why="Shorten it below the time after which your network cuts a quiet connection.",
        default=25.0,
    )
    max_lanes: Annotated[int, Field(ge=1, le=64)] = key(
        "How many commands may run at the same time; each handler has a lane of its own until this many are there.",
        unit="lanes",
        default=8,
    )
    signing: SigningConfig = key("Signed commands.", default_factory=dict, validate_default=True)
    handlers: dict[str, HandlerConfig] = key(
        "Settings by handler name; a handler that is not named here runs with its defaults.", default_factory=dict
    )
