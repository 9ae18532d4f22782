"""``fleet-simulator login``: sign in with a browser, keep the tokens in a file, and renew them for who cannot."""

from __future__ import annotations

import os
import sys
import time
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click

from agent.errors import Advice, ConfigurationError, ErrorAnswer, ServiceError, UnexpectedAnswer
from agent.files import replace_file
from agent.wire.client import Connection
from agent.wire.secret import Secret
from simulator.credentials import read_secret_file, takes_ca_file
from simulator.file_lock import lock_file
from simulator.login.errors import SignInEnded, SignInFailed, TokensNotStored
from simulator.login.flow import HOST, PATH, Listener, SignIn
from simulator.login.tokens import MAX_TOKEN_FILE_BYTES, MODE, TokenSet, read_tokens, renew, write_tokens
from simulator.wire import paths

DEFAULT_PORT: Final = 8976
DEFAULT_SCOPE: Final = "manufacturer:devices manufacturer:commands manufacturer:data"
_FILE: Final = click.Path(path_type=Path)
_AGENT_USER: Final = "device-agent"
_CHECK_EVERY_S: Final = 30.0
_TRY_AGAIN_S: Final = 10.0


@click.command("login")
@click.option("--base-url", required=True, help="Address of the service, such as http://127.0.0.1:8080.")
@click.option("--auth-url", help="Authorization address, where it is not --base-url.")
@click.option("--client-id", required=True, help="The partner application's client identifier.")
@click.option(
    "--client-secret-file",
    type=_FILE,
    help="File with the secret of a confidential client. A public client has none and proves itself by PKCE.",
)
@click.option(
    "--scope", default=DEFAULT_SCOPE, help="What to ask for, with spaces between; the default is what a device needs."
)
@takes_ca_file
@click.option(
    "--redirect-port",
    type=click.IntRange(1, 65535),
    default=DEFAULT_PORT,
    help=f"Register http://{HOST}:PORT{PATH} for the client: the service compares it to the letter.",
)
@click.option("--out", type=_FILE, default=Path("token.json"), help="File for the tokens, mode 600.")
@click.option(
    "--token-file",
    type=_FILE,
    help="File for the access token alone: what auth.token_file of device-agent names. It is good for an hour.",
)
@click.option("--keep", is_flag=True, help="Stay and renew. Where --out holds tokens already, nobody has to sign in.")
@click.option("--browser/--no-browser", default=True, help="Open a browser here, or only print the address.")
@click.option(
    "--paste", is_flag=True, help="For a machine without a browser: paste the address that a browser ended at."
)
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(min=1), default=300.0, help="Seconds to wait for the browser."
)
def login_command(
    *, client_secret_file: Path | None, ca_file: Path | None, out: Path, token_file: Path | None, **given: Any
) -> None:
    """Sign in with a browser and keep the tokens in a file, which --token-file of the other commands takes.

    An access token is good for an hour; with --keep it is renewed in the file. A device takes the access token alone,
    out of --token-file.

    Exit code 0: the file holds the tokens. 1: denied, no answer in time, or refused; the file is as it was. 2: usage,
    a port in use, or a file that cannot be written. 5: the service cannot be reached.
    """
    secret = None if client_secret_file is None else read_secret_file(client_secret_file, "--client-secret-file")
    base_url, client_id = given["base_url"].rstrip("/"), given["client_id"]
    with _locked(out), Connection(base_url, max_answer_bytes=MAX_TOKEN_FILE_BYTES, ca_file=ca_file) as connection:
        held = _find_held(out)
        if not given["keep"] or held is None or (held.base_url, held.client_id) != (base_url, client_id):
            tokens = _sign_in(connection, secret, given)
            write_tokens(out, tokens)
            _write_token(token_file, tokens)
            click.echo(f"signed in: {out} holds the tokens of {client_id} for {tokens.scope}")
        if given["keep"]:
            _keep(connection, out, secret, token_file)


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Keep other logins away from a token file, by a file beside it.

    Raises:
        ConfigurationError: another one works on it, or the folder cannot be written.
    """
    fd = -1
    try:
        fd = os.open(f"{out}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, MODE)
        lock_file(fd)
    except OSError as error:
        fault = f"--out {out} cannot be locked ({error.strerror}): another login keeps it, or choose another file"
        raise ConfigurationError([fault], "login") from None
    else:
        yield
    finally:
        if fd >= 0:
            os.close(fd)


def _find_held(out: Path) -> TokenSet | None:
    """The tokens that the file holds by now. It must be one that can be written, before anybody signs in for nothing.

    Raises:
        ConfigurationError: it is something else, or cannot be written.
    """
    if not out.exists():
        return None
    try:
        held = read_tokens(out)
        write_tokens(out, held)
    except (SignInEnded, TokensNotStored) as error:
        raise ConfigurationError([f"--out {out}: {error}; or choose another file"], "login") from None
    return held


def _sign_in(connection: Connection, secret: Secret | None, given: dict[str, Any]) -> TokenSet:
    with suppress(ErrorAnswer, UnexpectedAnswer):  # nobody is to sign in at what is not there
        connection.request("GET", paths.PRODUCTS)
    redirect_uri = f"http://{HOST}:{given['redirect_port']}{PATH}"
    sign_in = SignIn(connection, given["client_id"], secret, given["scope"], redirect_uri, given["auth_url"])
    url = sign_in.url
    if given["paste"]:
        click.echo("open this address in a browser on any machine and sign in:\n", err=True)
        click.echo(url)
        click.echo("\nthe browser ends at a page that it cannot show; paste the address of that page here", err=True)
        query = urlsplit(click.prompt("address", err=True).strip()).query
        if not query:
            raise SignInFailed("that is not the address: copy all that the browser's address line shows")
        return sign_in.finish(query)
    with Listener(given["redirect_port"]) as listener:
        # Without a screen the standard library would start a text browser in this very terminal.
        has_screen = sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
        if given["browser"] and has_screen:
            webbrowser.open(url)
        click.echo("sign in, in a browser on this machine, at this address:\n", err=True)
        click.echo(url)
        return sign_in.finish(listener.wait(given["timeout_s"]))


def _write_token(path: Path | None, tokens: TokenSet) -> None:
    if path is None:
        return
    try:
        replace_file(path, tokens.access_token.reveal() + "\n", MODE, durable=True, group=_AGENT_USER)
    except OSError as error:
        raise TokensNotStored(f"--token-file {path} cannot be written: {error.strerror}") from None


def _keep(connection: Connection, out: Path, client_secret: Secret | None, token_file: Path | None) -> None:
    """Renew until a person has to sign in again; what fails for now is said once and tried again."""
    written: Secret | None = None
    trouble = ""
    while True:
        try:
            tokens = renew(connection, out, client_secret)
            if tokens.access_token != written:
                _write_token(token_file, tokens)
                written = tokens.access_token
            trouble, pause_s = "", max(1.0, min(_CHECK_EVERY_S, tokens.renew_at - time.time()))
        except ServiceError as error:
            if error.advice is not Advice.RETRY:
                raise
            if str(error) != trouble:
                click.echo(f"not renewed yet: {error}", err=True)
            trouble, pause_s = str(error), _TRY_AGAIN_S
        time.sleep(pause_s)
