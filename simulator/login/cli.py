"""``fleet-simulator login``: sign in with a browser, keep the tokens in a file, and renew them for who cannot."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import webbrowser
from pathlib import Path
from typing import Final

import click

from agent.errors import Advice, ConfigurationError, ErrorAnswer, ServiceError, UnexpectedAnswer
from agent.files import replace_file
from agent.wire import paths
from agent.wire.connection import Connection
from agent.wire.secret import MAX_TOKEN_FILE_BYTES, Secret
from simulator.credentials import read_secret_file, takes_ca_file
from simulator.login.errors import SignInEnded, TokensNotStored
from simulator.login.flow import HOST, PATH, Listener, SignIn, query_of
from simulator.login.tokens import MODE, RefreshingBearer, TokenFile, TokenSet
from simulator.terminal import option

DEFAULT_PORT: Final = 8976
DEFAULT_SCOPE: Final = "manufacturer:devices manufacturer:commands manufacturer:data"
_AGENT_USER: Final = "device-agent"
_LOOK_S: Final = 30.0
_TRY_AGAIN_S: Final = 10.0


@click.command("login", context_settings={"auto_envvar_prefix": "FLEET_SIMULATOR_LOGIN"})
@option("--base-url", required=True, help="Address of the service, such as http://127.0.0.1:8080.")
@option("--auth-url", help="Authorization address, where it is not --base-url.")
@option("--client-id", required=True, help="The partner application's client identifier.")
@option(
    "--client-secret-file",
    type=click.Path(path_type=Path),
    help="File with the secret of a confidential client. A public client has none and proves itself by PKCE.",
)
@option(
    "--scope", default=DEFAULT_SCOPE, help="What to ask for, with spaces between; the default is what a device needs."
)
@takes_ca_file
@option(
    "--redirect-port",
    type=click.IntRange(1, 65535),
    default=DEFAULT_PORT,
    help=f"Register http://{HOST}:PORT{PATH} for the client: the service compares it to the letter.",
)
@option("--out", type=click.Path(path_type=Path), default=Path("token.json"), help="File for the tokens, mode 600.")
@option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="File for the access token alone: what auth.token_file of device-agent names. It is good for an hour.",
)
@option("--keep", is_flag=True, help="Stay and renew. Where --out holds tokens already, nobody has to sign in.")
@option("--browser/--no-browser", default=True, help="Open a browser here, or only print the address.")
@option("--paste", is_flag=True, help="For a machine without a browser: paste the address that a browser ended at.")
@option("--timeout", "timeout_s", type=click.FloatRange(min=1), default=300.0, help="Seconds to wait for the browser.")
def login_command(
    *,
    base_url: str,
    auth_url: str | None,
    client_id: str,
    client_secret_file: Path | None,
    scope: str,
    ca_file: Path | None,
    redirect_port: int,
    out: Path,
    token_file: Path | None,
    keep: bool,
    browser: bool,
    paste: bool,
    timeout_s: float,
) -> None:
    """Sign in with a browser and keep the tokens in a file, out of which ServiceClient renews them by itself.

    A device takes the access token alone, out of --token-file; with --keep it is renewed there.

    Exit code 0: the file holds the tokens. 1: denied, no answer in time, or refused; the file is as it was. 2: usage,
    a port in use, or a file that cannot be written. 5: the service cannot be reached.
    """
    secret = None if client_secret_file is None else read_secret_file(client_secret_file, "--client-secret-file")
    file = TokenFile(out)
    held = _find_held(file)
    if not (keep and held is not None and (held.base_url, held.client_id) == (base_url.rstrip("/"), client_id)):
        with Connection(base_url, max_answer_bytes=MAX_TOKEN_FILE_BYTES, ca_file=ca_file) as connection:
            with contextlib.suppress(ErrorAnswer, UnexpectedAnswer):  # nobody is to sign in at what is not there
                connection.request("GET", paths.PRODUCTS)
            redirect_uri = f"http://{HOST}:{redirect_port}{PATH}"
            sign_in = SignIn(connection, client_id, secret, scope, redirect_uri, auth_url)
            if paste:
                query = _by_hand(sign_in.url)
            else:
                query = _by_browser(sign_in.url, redirect_port, timeout_s, open_it=browser)
            tokens = sign_in.finish(query)
        with file.locked():
            file.write(tokens)
        _write_token(token_file, tokens)
        click.echo(f"signed in: {out} holds the tokens of {client_id} for {tokens.scope}")
    if keep:
        _keep(RefreshingBearer(file, client_secret=secret, ca_file=ca_file), token_file)


def _find_held(file: TokenFile) -> TokenSet | None:
    """The tokens that the file holds by now. It must be one that can be written, before anybody signs in for nothing.

    Raises:
        ConfigurationError: it is something else, or cannot be written.
    """
    try:
        with file.locked():
            held = file.read() if file.exists() else None
            if held is not None:
                file.write(held)
            return held
    except SignInEnded:
        fault = f"--out {file.name} is there and is no token file: choose another"
    except TokensNotStored as error:
        fault = f"--out {file.name}: {error}"
    raise ConfigurationError([fault], "login")


def _by_browser(url: str, port: int, timeout_s: float, *, open_it: bool) -> str:
    """What the browser came back with."""
    with Listener(port) as listener:
        # Without a screen the standard library would start a text browser in this very terminal.
        has_screen = sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
        if open_it and has_screen and webbrowser.open(url):
            click.echo("sign in, in the browser that has just opened, or in another one at this address:\n", err=True)
        else:
            click.echo("open this address in a browser on this machine and sign in:\n", err=True)
        click.echo(url)
        return listener.wait(timeout_s)


def _by_hand(url: str) -> str:
    click.echo("open this address in a browser on any machine and sign in:\n", err=True)
    click.echo(url)
    click.echo("\nthe browser ends at a page that it cannot show; paste the address of that page here", err=True)
    return query_of(click.prompt("address", err=True))


def _write_token(path: Path | None, tokens: TokenSet) -> None:
    if path is None:
        return
    try:
        replace_file(path, tokens.access_token.reveal() + "\n", MODE, durable=True, group=_AGENT_USER)
    except OSError as error:
        raise TokensNotStored(f"--token-file {path} cannot be written: {error.strerror}") from None


def _keep(bearer: RefreshingBearer, token_file: Path | None) -> None:
    """Renew until a person has to sign in again; what fails for now is told once and tried again."""
    written: Secret | None = None
    trouble = ""
    while True:
        pause_s = _LOOK_S
        try:
            tokens = bearer.current()
            if tokens.access_token != written:
                _write_token(token_file, tokens)
                written = tokens.access_token
            pause_s = max(1.0, min(_LOOK_S, tokens.renew_at - time.time()))
            trouble = ""
        except ServiceError as error:
            if error.advice is not Advice.RETRY:
                raise
            if str(error) != trouble:
                click.echo(f"not renewed yet: {error}", err=True)
            trouble, pause_s = str(error), _TRY_AGAIN_S
        time.sleep(pause_s)
