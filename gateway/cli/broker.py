"""``device-gateway broker-config``, ``broker-update`` and ``certificates``."""

from __future__ import annotations

import secrets
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agent.cli.lazy import acts_for_owners
from agent.cli.options import configuration_faults_end_it
from agent.error_text import bounded
from agent.errors import ConfigurationError
from agent.exit_codes import EXIT_CHECK_FAILED
from agent.process.identity import as_owner_of
from gateway.cli.options import gateway_config_option, load_without_keys

if TYPE_CHECKING:
    from gateway.certificates import CertificateFiles

_TLS = Path("/etc/device-gateway/tls")
_DIRECTORY = Path("/etc/mosquitto/device-gateway")


@click.command()
@click.option(
    "--host",
    "hosts",
    multiple=True,
    required=True,
    help="A name or address under which devices reach this server; once for each.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=_TLS,
    show_default=True,
    help="Where ca.pem, ca.key, server.pem and server.key go.",
)
@click.option("--renew", is_flag=True, help="Make the server's certificate again, also when it is far from its end.")
@click.option("--user", default="device-gateway", show_default=True, help="Whose group reads what root writes.")
def certificates(*, hosts: tuple[str, ...], directory: Path, renew: bool, user: str) -> None:
    """Make an authority of your own and a certificate for this server, or renew the certificate.

    The authority is made once and kept: devices trust its ca.pem. Run it again now and then: the server's certificate
    is made again from 30 days before its end on. Then reload the gateway and the broker.
    """
    from gateway.certificates import make_certificates

    with configuration_faults_end_it():
        files = make_certificates(directory, hosts, datetime.now(UTC), renew=renew, user=user)
    for line in files.lines:
        click.echo(line)


@click.command("broker-config")
@gateway_config_option
@click.option(
    "--conf",
    "configuration",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("/etc/mosquitto/conf.d/device-gateway.conf"),
    show_default=True,
    help="The file for mosquitto.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=_DIRECTORY,
    show_default=True,
    help="Where passwords, rules and a copy of the certificate go.",
)
@click.option(
    "--tls-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=_TLS,
    show_default=True,
    help="Where device-gateway certificates has put them; they are made here when --host is given.",
)
@click.option("--host", "hosts", multiple=True, help="Make the certificates first, for this name or address.")
@click.option("--cafile", type=click.Path(path_type=Path, dir_okay=False), help="Another authority: its PEM file.")
@click.option("--certfile", type=click.Path(path_type=Path, dir_okay=False), help="And the broker's certificate.")
@click.option("--keyfile", type=click.Path(path_type=Path, dir_okay=False), help="And the certificate's key.")
@click.option("--no-tls", is_flag=True, help="No TLS: for loopback and closed test networks.")
@click.option("--port", type=click.IntRange(1, 65535), help="Of the listener. Default: 8883, without TLS 1883.")
@click.option("--bind", help="The address to listen on. Default: all, without TLS 127.0.0.1.")
@click.option("--gateway-user", help="The gateway's user name at the broker. Default: mqtt.user_name, or 'gateway'.")
@click.option(
    "--password-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The gateway's password; made where there is none. Default: mqtt.password_file, or mqtt_password beside the "
    "configuration.",
)
@click.option(
    "--standalone",
    is_flag=True,
    help="Write all that mosquitto needs, for a broker that reads no other file: mosquitto -c FILE.",
)
@click.option(
    "--user", default="mosquitto", show_default=True, help="The broker's, whose group reads what root writes."
)
@acts_for_owners
def broker_config(
    *,
    config_path: Path,
    configuration: Path,
    directory: Path,
    tls_dir: Path,
    hosts: tuple[str, ...],
    cafile: Path | None,
    certfile: Path | None,
    keyfile: Path | None,
    no_tls: bool,
    port: int | None,
    bind: str | None,
    gateway_user: str | None,
    password_file: Path | None,
    standalone: bool,
    user: str,
) -> None:
    """Write a mosquitto configuration: passwords of the present devices, rules, TLS, limits.

    Run it again after devices add, rotate or revoke: only what changed is written, and it says how mosquitto takes it
    over.
    """
    from gateway.broker import BrokerSettings, device_passwords, gateway_password, write_broker_config
    from gateway.initial import OWNER

    with configuration_faults_end_it():
        config = load_without_keys(config_path)
        files = None if no_tls else _certificates(tls_dir, hosts, cafile, certfile, keyfile)
        name = gateway_user or config.mqtt.user_name or "gateway"
        path = password_file or config.mqtt.password_file or config_path.parent / "mqtt_password"
        password = gateway_password(path, secrets.token_urlsafe, OWNER)
        settings = BrokerSettings(
            configuration.absolute(),
            directory.absolute(),
            port=port or (1883 if no_tls else 8883),
            host=bind or ("127.0.0.1" if no_tls else None),
            tls=files,
            standalone=standalone,
            user=user,
        )
        written = write_broker_config(settings, device_passwords(config.state_dir), name, password)
    for line in (*(files.lines if files else ()), *written.lines):
        click.echo(line)
    click.echo(f"the gateway's user name is {name}, its password is in {path}")
    if written.restart:
        click.echo(f"next: {f'mosquitto -c {configuration}' if standalone else 'systemctl restart mosquitto'}")
    elif written.reload:
        click.echo("next: systemctl reload mosquitto (or SIGHUP): connections stay, those of revoked devices end")
    else:
        click.echo("nothing changed: mosquitto need not read it again")


@click.command("broker-update")
@gateway_config_option
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=_DIRECTORY,
    show_default=True,
    help="Where broker-config has put passwords and rules.",
)
@click.option(
    "--user", default="mosquitto", show_default=True, help="The broker's, whose group reads what root writes."
)
@click.option("--reload/--no-reload", default=True, help="Have systemd reload the broker when something has changed.")
@click.option("--unit", default="mosquitto.service", show_default=True, help="The broker's unit.")
@acts_for_owners
def broker_update(*, config_path: Path, directory: Path, user: str, reload: bool, unit: str) -> None:
    """Bring the passwords of the devices at the broker up to date, and reload it.

    device-gateway-broker.path runs it after each change. Listener, rules and certificate stay as broker-config wrote
    them.

    Exit codes: 0 good, 1 the broker was not reloaded, 2 a file cannot be used.
    """
    from gateway.broker import device_passwords, update_passwords
    from gateway.devices import BROKER_MARK

    with configuration_faults_end_it():
        config = load_without_keys(config_path)
        try:
            # Before the tokens are read: a change after that sets it again.
            as_owner_of(config.state_dir, lambda: (config.state_dir / BROKER_MARK).unlink(missing_ok=True))
        except OSError as error:
            fault = f"{error.filename} cannot be removed: {error.strerror}; run it as root"
            raise ConfigurationError([fault], "broker-update") from None
        devices = device_passwords(config.state_dir)
        changed = update_passwords(directory, devices, user)
    if not changed:
        click.echo(f"{len(devices)} device(s): nothing changed")
        return
    click.echo(f"{len(devices)} device(s): wrote {directory / 'passwords'}")
    if reload:
        _reload(unit)
    else:
        click.echo(f"next: systemctl reload {unit}")


def _reload(unit: str) -> None:
    systemctl = shutil.which("systemctl")
    done = None if systemctl is None else subprocess.run((systemctl, "reload", unit), capture_output=True, check=False)
    if done is None or done.returncode != 0:
        why = "there is no systemctl" if done is None else done.stderr.decode(errors="replace").strip()
        click.echo(bounded(f"{unit} was not reloaded ({why}): send mosquitto a SIGHUP"), err=True)
        raise SystemExit(EXIT_CHECK_FAILED)
    click.echo(f"reloaded {unit}")


def _certificates(
    tls_dir: Path, hosts: tuple[str, ...], cafile: Path | None, certfile: Path | None, keyfile: Path | None
) -> CertificateFiles:
    from gateway.broker import refuse_foreign_folders
    from gateway.certificates import CertificateFiles, make_certificates

    if cafile or certfile or keyfile:
        if not (cafile and certfile and keyfile):
            raise click.UsageError("--cafile, --certfile and --keyfile go together")
        given = CertificateFiles(cafile.absolute(), certfile.absolute(), keyfile.absolute())
    elif hosts:
        from gateway.initial import OWNER

        tls_dir = tls_dir.absolute()
        refuse_foreign_folders("broker-config", tls_dir)
        given = make_certificates(tls_dir, hosts, datetime.now(UTC), user=OWNER)
    else:
        there = tls_dir.absolute()
        given = CertificateFiles(there / "ca.pem", there / "server.pem", there / "server.key")
    faults = [
        f"{path}: there is no such file; give --host NAME to make certificates, or --cafile, --certfile and --keyfile"
        for path in (given.authority, given.certificate, given.private_key)
        if not path.is_file()
    ]
    if faults:
        raise ConfigurationError(faults, "broker-config")
    return given
