"""The options of the commands that lead to a service, and the checks of ids."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from agent.wire.limits import IDENTIFIER_CHARACTERS
from simulator.credentials import takes_ca_file
from simulator.onboarding.connecting import ServiceAccess
from simulator.terminal import CommandLineError, option

PREFIX: Final = "FLEET_SIMULATOR_ONBOARD"
"""Of the environment variables of these commands; the command and the option's name follow."""

_ACCESS = (
    option("--base-url", help="Address of the service, such as http://127.0.0.1:8080; a token file knows its own."),
    option("--api-key", help="The public key, mk_..."),
    option(
        "--secret-key-file",
        type=click.Path(path_type=Path),
        help="File with the secret key, msk_...; never given on the command line, where other users see it.",
    ),
    option(
        "--token-file",
        type=click.Path(path_type=Path),
        help="Instead of keys: the file that 'fleet-simulator login' wrote. It is renewed as needed.",
    ),
    option(
        "--client-secret-file",
        type=click.Path(path_type=Path),
        help="With --token-file: the secret of a confidential client, to renew its tokens.",
    ),
    takes_ca_file,
    option("--timeout-s", type=click.FloatRange(min=0.1), default=10.0, help="Patience with one request."),
    option("--max-wait-s", type=click.FloatRange(min=0), default=120.0, help="Longest wait of one step for the quota."),
)
_OTHER = (
    option("--other-api-key", help="Public key of a second account, which must not see anything of the first."),
    option("--other-secret-key-file", type=click.Path(path_type=Path), help="File with its secret key."),
    option("--other-token-file", type=click.Path(path_type=Path), help="Or a token file of the second account."),
)


def takes_access(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options with address and credentials; the command gets them as ``access``."""

    @functools.wraps(command)
    def wrapper(**given: Any) -> None:
        names = (
            "base_url",
            "api_key",
            "secret_key_file",
            "token_file",
            "client_secret_file",
            "ca_file",
            "timeout_s",
            "max_wait_s",
        )
        command(access=ServiceAccess(**{name: given.pop(name) for name in names}), **given)

    return functools.reduce(lambda made, add: add(made), reversed(_ACCESS), wrapper)


def takes_other(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a second account; below :func:`takes_access`, the command gets it as ``other``."""

    @functools.wraps(command)
    def wrapper(*, access: ServiceAccess, **given: Any) -> None:
        key, secret, tokens = (given.pop(f"other_{name}") for name in ("api_key", "secret_key_file", "token_file"))
        other = replace(
            access, api_key=key, secret_key_file=secret, token_file=tokens, client_secret_file=None, prefix="--other-"
        )
        command(access=access, other=other, **given)

    return functools.reduce(lambda made, add: add(made), reversed(_OTHER), wrapper)


def check_ids(**given: str | None) -> None:
    """Refuse ids that no service takes, before anything is asked.

    Args:
        given: by the option's name, such as ``user_id``; None stands for one that was left out.

    Raises:
        CommandLineError: one is empty or longer than the specification's limit.
    """
    for name, value in given.items():
        option_name = f"--{name.replace('_', '-')}"
        if value is not None and not value.strip():
            raise CommandLineError(f"{option_name} is empty: give an id of 1 to {IDENTIFIER_CHARACTERS} characters")
        if value is not None and len(value) > IDENTIFIER_CHARACTERS:
            raise CommandLineError(
                f"{option_name} has {len(value)} characters: give an id of 1 to {IDENTIFIER_CHARACTERS}"
            )
