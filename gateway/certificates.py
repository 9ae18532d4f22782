"""``device-gateway certificates``: your own authority, a server certificate, and when they expire.

For a fleet that trusts its own authority and nobody else's: devices get ``ca.pem`` with their configuration. A server
with a public name may as well use certificates of a public authority; then nothing of this is needed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import click
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from agent.errors import ConfigurationError
from agent.files import replace_file
from agent.wire.network import is_this_machine, read_host
from gateway.options import files_in_use, path_option

OWNER: Final = "device-gateway"
"""The user that the systemd unit runs the gateway as."""
TLS_DIR: Final = Path("/etc/device-gateway/tls")
SERVER_DAYS: Final = 397
"""As long as public authorities may give one; it is renewed in its last 30 days."""
AUTHORITY_DAYS: Final = 3653
_RENEW_BEFORE: Final = timedelta(days=30)
_WARN_BEFORE_S: Final = 14 * 86400.0
_SKEW: Final = timedelta(days=1)  # a device whose clock is a little behind
_SOURCE: Final = "certificates"


class CertificateFiles(NamedTuple):
    """The files that a server needs.

    Attributes:
        authority: what devices trust.
        certificate: the server's, with the authority's below it.
        private_key: the server's.
    """

    authority: Path
    certificate: Path
    private_key: Path


def files_in(directory: Path) -> CertificateFiles:
    return CertificateFiles(directory / "ca.pem", directory / "server.pem", directory / "server.key")


def make_certificates(directory: Path, hosts: Sequence[str], now: datetime) -> CertificateFiles:
    """``ca.pem``, ``ca.key``, ``server.pem`` and ``server.key`` for a server that is reached under these names.

    The authority is made once and kept. The server's certificate is made again when it is not for these names, when it
    ends within 30 days, or when another authority signed it. What root writes stays root's, and the
    group of the gateway's user may read the server's key. A line is printed for what was written or kept.

    Args:
        directory: made where there is none.
        hosts: host names and IP addresses.
        now: the time, with its zone.

    Raises:
        ConfigurationError: a name is none, or a file cannot be read or written.
    """
    names = _names(hosts)
    files = files_in(directory)
    with files_in_use(_SOURCE, "give another directory or use sudo"):
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        authority, authority_key = _authority(directory, now)
        if _is_good(files, authority, names, now):
            click.echo(f"kept {files.certificate}: it is for these names and not near its end")
            return files
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(str(names[0].value)[:64])  # X.520 allows 64 characters
        certificate = (
            _builder(name, authority.subject, key, now, SERVER_DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
            )
            .sign(authority_key, hashes.SHA256())
        )
        replace_file(files.private_key, _key_text(key), 0o600, group=OWNER)
        pem = serialization.Encoding.PEM
        replace_file(files.certificate, certificate.public_bytes(pem) + authority.public_bytes(pem), 0o644)
    ends = f"{certificate.not_valid_after_utc:%Y-%m-%d}"
    click.echo(f"wrote {files.certificate} and {files.private_key}, good until {ends}")
    return files


def certificate_trouble(path: Path | None, now_s: float) -> str:
    """One sentence when the certificate has expired, is not yet valid, or expires within 14 days; else empty."""
    if path is None:
        return ""
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        return f"{path} cannot be read as a certificate: {error}"
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    fix = "renew it (device-gateway certificates --host NAME) and restart the gateway"
    if now_s >= ends.timestamp():
        return f"{path} expired on {ends:%Y-%m-%d}, so devices refuse it: {fix}"
    if now_s < begins.timestamp():
        return f"{path} is good only from {begins:%Y-%m-%d} on: mend this machine's clock"
    return f"{path} expires on {ends:%Y-%m-%d}: {fix}" if ends.timestamp() - now_s < _WARN_BEFORE_S else ""


def shown_certificate(url: str, path: Path | None, *, plain: bool) -> bytes | None:
    """The certificate that a device is shown at an address, DER; None for one without TLS.

    Args:
        url: where devices enroll.
        path: PEM file, the server's certificate first.
        plain: an address without TLS was asked for.

    Raises:
        ConfigurationError: no address, one without TLS that was not asked for, or no certificate that is known.
    """
    parts = urlsplit(url)
    if parts.scheme == "http" and (plain or is_this_machine(parts.hostname or "")):
        return None
    if parts.scheme == "http":
        fault = f"{url} has no TLS, so a code could be read on the way: give https://, or --plain in a closed network"
    elif parts.scheme != "https":
        fault = "devices enroll over HTTP: give --url https://HOST:PORT, the gateway's address for devices"
    elif path is None:
        fault = "the gateway has no certificate of its own: name the one that its proxy shows (--certificate FILE)"
    else:
        try:
            return x509.load_pem_x509_certificate(path.read_bytes()).public_bytes(serialization.Encoding.DER)
        except (OSError, ValueError) as error:
            fault = f"{path} cannot be read as a certificate: {error}"
    raise ConfigurationError([fault], "invite")


def _authority(directory: Path, now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """The authority of this folder; made where there is none."""
    path, key_path = directory / "ca.pem", directory / "ca.key"
    if not path.exists() and not key_path.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(f"Device gateway authority {now:%Y-%m-%d}")
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        certificate = (
            _builder(name, name, key, now, AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        replace_file(key_path, _key_text(key), 0o600)
        replace_file(path, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
        click.echo(f"wrote {path} for devices, and {key_path} (mode 600), which never leaves this machine")
        return certificate, key
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        known = serialization.load_pem_private_key(key_path.read_bytes(), None)
    except FileNotFoundError as error:
        fault = f"{error.filename} is missing"
    except (ValueError, TypeError) as error:
        fault = f"{path} and {key_path} cannot be read: {error}"
    else:
        if not isinstance(known, ec.EllipticCurvePrivateKey) or known.public_key() != certificate.public_key():
            fault = f"{key_path} is not the key of {path}"
        elif certificate.not_valid_after_utc - _RENEW_BEFORE < now:
            ends = f"{certificate.not_valid_after_utc:%Y-%m-%d}"
            fault = f"{path} ends on {ends}, and devices will need another ca.pem"
        else:
            click.echo(f"kept {path}, which devices trust already")
            return certificate, known
    raise ConfigurationError([f"{fault}; restore it, or move both away to begin anew"], _SOURCE)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    """A certificate that is good from now on, for so many days."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + timedelta(days=days))
    )


def _is_good(
    files: CertificateFiles, authority: x509.Certificate, names: Sequence[x509.GeneralName], now: datetime
) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
        certificate.verify_directly_issued_by(authority)
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        key = serialization.load_pem_private_key(files.private_key.read_bytes(), None)
    except Exception:  # noqa: BLE001 - whatever is wrong with it, a new one mends it
        return False
    is_long = certificate.not_valid_after_utc - _RENEW_BEFORE > now.astimezone(UTC)
    return is_long and set(found) == set(names) and key.public_key() == certificate.public_key()


def _names(hosts: Sequence[str]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = []
    faults = [] if hosts else ["no name was given under which devices reach this server; give --host"]
    for host in hosts:
        try:
            name = read_host(host)
            try:
                names.append(x509.IPAddress(ipaddress.ip_address(name)))
            except ValueError:
                names.append(x509.DNSName(name))
        except ValueError:
            faults.append(f"{host!r} is neither a host name nor an IP address; write it without scheme and port")
    if faults:
        raise ConfigurationError(faults, _SOURCE)
    return names


def _key_text(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


@click.command()
@click.option(
    "--host",
    "hosts",
    multiple=True,
    required=True,
    help="A name or address under which devices reach this server; once for each.",
)
@path_option("--dir", "Where ca.pem, ca.key, server.pem and server.key go.", TLS_DIR, is_folder=True)
def certificates(*, hosts: tuple[str, ...], dir: Path) -> None:
    """Make an authority of your own and a certificate for this server, or renew the certificate.

    The authority is made once and kept: devices trust its ca.pem. Run it again now and then: the server's certificate
    is made again from 30 days before its end on. Then restart the gateway, and run broker-config.
    """
    make_certificates(dir, hosts, datetime.now(UTC))
