"""Options of commands that talk to a server: key pair or bearer token, and the trusted authorities."""

from __future__ import annotations

from pathlib import Path

import click

from agent.errors import ConfigurationError
from agent.wire.auth import BearerToken, KeyPair
from agent.wire.secret import Secret, never_show
from agent.wire.trust import trust_store


def read_credential(
    command: str, api_key: str | None, secret_key_file: Path | None, token_file: Path | None
) -> KeyPair | BearerToken:
    """The key pair, or the token alone.

    Args:
        command: the command's name, for error texts.
        api_key: the public key.
        secret_key_file: holds the secret key.
        token_file: holds a bearer token.

    Raises:
        ConfigurationError: neither or both are given, or a file cannot be used.
    """
    if token_file is not None and api_key is None and secret_key_file is None:
        return BearerToken(read_secret_file(token_file, "--token-file"))
    if token_file is None and api_key is not None and secret_key_file is not None:
        return KeyPair(api_key, read_secret_file(secret_key_file, "--secret-key-file"))
    raise ConfigurationError(["give --api-key and --secret-key-file, or --token-file alone"], command)


def _check_ca_file(_context: click.Context, _option: click.Parameter, ca_file: Path | None) -> Path | None:
    if ca_file is None:
        return None
    try:
        trust_store(ca_file)
    except OSError as error:
        text = f"{ca_file} cannot be used ({error.strerror or error}); give a PEM file with certificates"
        raise click.BadParameter(text) from None
    return ca_file.absolute()


takes_ca_file = click.option(
    "--ca-file",
    type=click.Path(path_type=Path),
    callback=_check_ca_file,
    show_envvar=True,
    help="PEM file with the authorities that alone are trusted over TLS.  [default: the system's]",
)
"""Add the option that says whom to trust; no other environment variable adds to it."""


def read_secret_file(path: Path, option_name: str) -> Secret:
    """The secret in a file; no output shows it from here on.

    Args:
        path: the file, with the secret alone in it.
        option_name: the option that names the file, for error texts.

    Raises:
        ConfigurationError: the file cannot be read or is empty.
    """
    try:
        value = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not ASCII text"
        raise ConfigurationError([f"{option_name} {path} cannot be read: {reason}"], option_name) from None
    if not value:
        raise ConfigurationError([f"{option_name} {path} is empty: put the secret alone into it"], option_name)
    never_show(value)
    return Secret(value)
