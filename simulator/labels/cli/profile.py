"""The options that say how a label is written and signed, for every command that makes labels; no logic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from agent.errors import ConfigurationError
from simulator.labels.errors import LabelError
from simulator.labels.payload import PROFILES, Payload, open_payload
from simulator.terminal import option
from simulator.wire.qr.keys import read_label_signer

Command = TypeVar("Command", bound=Callable[..., Any])


def profile_options(command: Command) -> Command:
    """``--profile``, ``--link-host`` and ``--sign-key-file``, to be given to :func:`open_profile`."""
    for decorate in reversed(
        (
            option(
                "--profile", default="json", help=f"Payload: {', '.join(PROFILES)}, or one of an installed package."
            ),
            option("--link-host", default="", help="Host of the profile link, such as onboard.example.com."),
            option(
                "--sign-key-file",
                type=click.Path(path_type=Path),
                help="Sign with the key in this file (labels keygen); a key is never given on the command line.",
            ),
        )
    ):
        command = decorate(command)
    return command


def open_profile(profile: str, link_host: str, sign_key_file: Path | None) -> Payload:
    """The profile that the options ask for.

    Raises:
        LabelError: there is none, or the key cannot be read.
    """
    try:
        signer = read_label_signer(sign_key_file) if sign_key_file else None
    except ConfigurationError as problem:
        raise LabelError(problem.in_one_line) from None
    return open_payload(profile, host=link_host, signer=signer)
