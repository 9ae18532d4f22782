"""``device-gateway broker-config``, ``broker-update`` and ``certificates``."""

from __future__ import annotations

import secrets
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import click

from agent.cli.program import acts_for_owners
from agent.errors import EXIT_CHECK_FAILED, ConfigurationError
from agent.identity import as_owner_of
from gateway.broker import (
    BrokerSettings,
    device_passwords,
    gateway_password,
    update_passwords,
    write_broker_config,
)
from gateway.certificates import given_certificates, make_certificates
from gateway.cli.options import complain, errors_end_it, gateway_config_option, load, path_option
from gateway.devices import BROKER_MARK
from gateway.initial import OWNER

_TLS = Path("/etc/device-gateway/tls")
_BROKER_DIR = Path("/etc/mosquitto/device-gateway")
_directory_option = path_option(
    "--dir", "Where passwords, rules and a copy of the certificate go.", _BROKER_DIR, is_folder=True
)
_user_option = click.option(
    "--user", default="mosquitto", show_default=True, help="The broker's, whose group reads what root writes."
)


@click.command()
@click.option(
    "--host",
    "hosts",
    multiple=True,
    required=True,
    help="A name or address under which devices reach this server; once for each.",
)
@path_option("--dir", "Where ca.pem, ca.key, server.pem and server.key go.", _TLS, is_folder=True)
@click.option("--renew", is_flag=True, help="Make the server's certificate again, also when it is far from its end.")
def certificates(*, hosts: tuple[str, ...], dir: Path, renew: bool) -> None:
    """Make an authority of your own and a certificate for this server, or renew the certificate.

    The authority is made once and kept: devices trust its ca.pem. Run it again now and then: the server's certificate
    is made again from 30 days before its end on. Then reload the gateway, and run broker-config.
    """
    with errors_end_it():
        files = make_certificates(dir, hosts, datetime.now(UTC), renew=renew, user=OWNER)
    for line in files.lines:
        click.echo(line)


@click.command("broker-config")
@gateway_config_option
@path_option("--conf", "The file for mosquitto.", Path("/etc/mosquitto/conf.d/device-gateway.conf"))
@_directory_option
@path_option(
    "--tls-dir", "Where ca.pem, server.pem and server.key are; see device-gateway certificates.", _TLS, is_folder=True
)
@click.option("--no-tls", is_flag=True, help="No TLS: for loopback and closed test networks.")
@click.option("--port", type=click.IntRange(1, 65535), help="Of the listener. Default: 8883, without TLS 1883.")
@click.option("--bind", help="The address to listen on. Default: all, without TLS 127.0.0.1.")
@click.option("--standalone", is_flag=True, help="Write all that mosquitto needs, for mosquitto -c FILE.")
@_user_option
@acts_for_owners
def broker_config(
    *,
    config_path: Path,
    conf: Path,
    dir: Path,
    tls_dir: Path,
    no_tls: bool,
    port: int | None,
    bind: str | None,
    standalone: bool,
    user: str,
) -> None:
    """Write a mosquitto configuration: passwords of the present devices, rules, TLS, limits.

    Run it again when listener or certificate change: only what differs is written, and it says how mosquitto takes it
    over.
    """
    with errors_end_it():
        config = load(config_path)
        name = config.mqtt.user_name or "gateway"
        path = config.mqtt.password_file or config_path.parent / "mqtt_password"
        settings = BrokerSettings(
            conf.absolute(),
            dir.absolute(),
            port=port or (1883 if no_tls else 8883),
            host=bind or ("127.0.0.1" if no_tls else None),
            tls=None if no_tls else given_certificates(tls_dir.absolute()),
            standalone=standalone,
            user=user,
        )
        password = gateway_password(path, secrets.token_urlsafe, OWNER)
        devices = device_passwords(config.state_dir)
        needs = write_broker_config(settings, devices, name, password)
    click.echo(f"{len(devices)} device(s), port {settings.port}, {'no TLS' if no_tls else 'TLS'}: {conf}, {dir}")
    click.echo(f"the gateway's user name is {name}, its password is in {path}")
    click.echo(
        {
            "restart": f"next: {f'mosquitto -c {conf}' if standalone else 'systemctl restart mosquitto'}",
            "reload": "next: systemctl reload mosquitto (or SIGHUP): connections of revoked devices end, others stay",
            "": "nothing changed: mosquitto need not read it again",
        }[needs]
    )


@click.command("broker-update")
@gateway_config_option
@_directory_option
@_user_option
@click.option("--reload/--no-reload", default=True, help="Have systemd reload mosquitto when something has changed.")
@acts_for_owners
def broker_update(*, config_path: Path, dir: Path, user: str, reload: bool) -> None:
    """Bring the passwords of the devices at the broker up to date, and reload it.

    device-gateway-broker.path runs it after each change. Listener, rules and certificate stay as broker-config wrote
    them.

    Exit codes: 0 good, 1 the broker was not reloaded, 2 a file cannot be used.
    """
    with errors_end_it():
        config = load(config_path)
        try:
            # Before the tokens are read: a change after that sets it again.
            as_owner_of(config.state_dir, lambda: (config.state_dir / BROKER_MARK).unlink(missing_ok=True))
        except OSError as error:
            fault = f"{error.filename} cannot be removed: {error.strerror}; run it as root"
            raise ConfigurationError([fault], "broker-update") from None
        devices = device_passwords(config.state_dir)
        changed = update_passwords(dir, devices, user)
    click.echo(f"{len(devices)} device(s): {f'wrote passwords in {dir}' if changed else 'nothing changed'}")
    systemctl = shutil.which("systemctl")
    if not changed or not reload:
        return
    done = systemctl and subprocess.run((systemctl, "reload", "mosquitto"), capture_output=True, check=False)
    if not done or done.returncode != 0:
        why = done.stderr.decode(errors="replace").strip() if done else "there is no systemctl"
        complain(f"mosquitto was not reloaded ({why}): send it a SIGHUP")
        raise SystemExit(EXIT_CHECK_FAILED)
    click.echo("reloaded mosquitto")
