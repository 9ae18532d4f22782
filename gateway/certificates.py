"""Certificates for the gateway and its broker: an authority of one's own, a server certificate, and when they end.

For a fleet that trusts its own authority and nobody else's: devices get ``ca.pem`` with their configuration. A server
with a public name may as well use certificates of a public authority; then nothing of this is needed.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from agent.errors import ConfigurationError
from agent.files import replace_file
from agent.wire.network import is_this_machine

SERVER_DAYS: Final = 397
"""As long as public authorities may give one; made again from the last 30 days on."""
AUTHORITY_DAYS: Final = 3653
_RENEW_BEFORE: Final = timedelta(days=30)
_WARN_BEFORE_S: Final = 14 * 86400.0
_SKEW: Final = timedelta(days=1)  # a device whose clock is a little behind
_NAME_CHARACTERS: Final = 253
_HOST: Final = re.compile(r"(?!.*-(\.|$))[A-Za-z0-9][A-Za-z0-9-]{0,62}(\.[A-Za-z0-9][A-Za-z0-9-]{0,62})*")


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """The files of the certificates, and what was made or kept.

    Attributes:
        authority: what devices trust.
        certificate: the server's, with the authority's below it.
        private_key: the server's.
        lines: one sentence for each file that was written or kept.
    """

    authority: Path
    certificate: Path
    private_key: Path
    lines: tuple[str, ...] = ()


def make_certificates(
    directory: Path, hosts: Sequence[str], now: datetime, *, renew: bool = False, user: str | None = None
) -> CertificateFiles:
    """``ca.pem``, ``ca.key``, ``server.pem`` and ``server.key`` for a server that is reached under these names.

    The authority is made once and kept. The server's certificate is made again when it is not for these names, when it
    ends within 30 days, when another authority signed it, or with ``renew``.

    Args:
        directory: made where there is none.
        hosts: host names and IP addresses.
        now: the time, with its zone.
        renew: make the server's certificate again in any case.
        user: as whom the server runs: what root writes stays root's, and this user's group may read the server's key.

    Raises:
        ConfigurationError: a name is none, or a file cannot be read or written.
    """
    names = _names(hosts)
    files = _files_in(directory)
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        authority, authority_key, line = _authority(directory, now)
        if not renew and _is_good(files, authority, names, now):
            kept = f"kept {files.certificate}: it is for these names and not near its end"
            return replace(files, lines=(line, kept))
        key = ec.generate_private_key(ec.SECP256R1())
        common = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, str(names[0].value)[:64])])  # X.520's bound
        certificate = _sign(
            (common, key),
            (authority.subject, authority_key),
            (now, SERVER_DAYS),
            x509.BasicConstraints(ca=False, path_length=None),
            x509.SubjectAlternativeName(names),
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
        )
        replace_file(files.private_key, _pem(key), 0o600, group=user)
        replace_file(files.certificate, _pem(certificate) + _pem(authority), 0o644)
    except OSError as error:
        fault = f"{error.filename or directory} cannot be written: {error.strerror}; give another directory or use sudo"
        raise ConfigurationError([fault], "certificates") from None
    ends = f"{certificate.not_valid_after_utc:%Y-%m-%d}"
    return replace(files, lines=(line, f"wrote {files.certificate} and {files.private_key}, good until {ends}"))


def given_certificates(directory: Path) -> CertificateFiles:
    """The files that somebody has put there.

    Raises:
        ConfigurationError: one of them is missing.
    """
    files = _files_in(directory)
    faults = [
        f"{path}: there is no such file; device-gateway certificates --host NAME makes it, or use --tls-dir or --no-tls"
        for path in (files.authority, files.certificate, files.private_key)
        if not path.is_file()
    ]
    if faults:
        raise ConfigurationError(faults, "certificates")
    return files


def _files_in(directory: Path) -> CertificateFiles:
    return CertificateFiles(directory / "ca.pem", directory / "server.pem", directory / "server.key")


def certificate_trouble(path: Path, now_s: float) -> str:
    """One sentence when the certificate is over, not yet good, or ends within 14 days; empty when all is well."""
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        return f"{path} cannot be read as a certificate: {error}"
    begins = certificate.not_valid_before_utc.timestamp()
    ends = certificate.not_valid_after_utc.timestamp()
    fix = "renew it (device-gateway certificates --renew) and reload the gateway"
    if now_s >= ends:
        return f"{path} expired on {certificate.not_valid_after_utc:%Y-%m-%d}, so devices refuse it: {fix}"
    if now_s < begins:
        return f"{path} is good only from {certificate.not_valid_before_utc:%Y-%m-%d} on: mend this machine's clock"
    if ends - now_s < _WARN_BEFORE_S:
        return f"{path} expires on {certificate.not_valid_after_utc:%Y-%m-%d}: {fix}"
    return ""


def shown_certificate(url: str, path: Path | None, *, plain: bool) -> bytes | None:
    """The certificate that a device is shown at an address, DER; None for one without TLS.

    Args:
        url: where devices enroll.
        path: PEM file, the server's certificate first.
        plain: an address without TLS was asked for.

    Raises:
        ConfigurationError: no address, one without TLS that was not asked for, or no certificate that is known.
    """
    scheme = urlsplit(url).scheme
    if scheme not in {"http", "https"}:
        text = "devices enroll over HTTP: give --url https://HOST:PORT, the gateway's address for devices"
        raise ConfigurationError([text], "invite")
    if scheme == "http":
        if not plain and not is_this_machine(urlsplit(url).hostname or ""):
            text = (
                f"{url} has no TLS, so a code could be read on the way: give https://, or --plain in a closed network"
            )
            raise ConfigurationError([text], "invite")
        return None
    if path is None:
        text = "the gateway has no certificate of its own: name the one that its proxy shows (--certificate FILE)"
        raise ConfigurationError([text], "invite")
    try:
        return x509.load_pem_x509_certificate(path.read_bytes()).public_bytes(serialization.Encoding.DER)
    except (OSError, ValueError) as error:
        raise ConfigurationError([f"{path} cannot be read as a certificate: {error}"], "invite") from None


def _authority(directory: Path, now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey, str]:
    """The authority that is there, or a new one, and a sentence on it."""
    path, key_path = directory / "ca.pem", directory / "ca.key"
    fault = ""
    if path.exists() and key_path.exists():
        try:
            certificate = x509.load_pem_x509_certificate(path.read_bytes())
            known = serialization.load_pem_private_key(key_path.read_bytes(), None)
            ends = certificate.not_valid_after_utc
            if isinstance(known, ec.EllipticCurvePrivateKey) and known.public_key() == certificate.public_key():
                if ends - _RENEW_BEFORE >= now:
                    return certificate, known, f"kept {path}, which devices trust already"
                fault = f"{path} ends on {ends:%Y-%m-%d}, and devices will need another ca.pem"
            else:
                fault = f"{key_path} is not the key of {path}"
        except (ValueError, TypeError) as error:
            fault = f"{path} and {key_path} cannot be read: {error}"
    elif path.exists() or key_path.exists():
        there, missing = (path, key_path) if path.exists() else (key_path, path)
        fault = f"{there} is there and {missing} is not"
    if fault:
        raise ConfigurationError([f"{fault}; restore it, or move both away to begin anew"], "certificates")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Device gateway authority {now:%Y-%m-%d}")])
    certificate = _sign(
        (name, key),
        (name, key),
        (now, AUTHORITY_DAYS),
        x509.BasicConstraints(ca=True, path_length=0),
        x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        ),
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()),
    )
    replace_file(key_path, _pem(key), 0o600)
    replace_file(path, _pem(certificate), 0o644)
    return certificate, key, f"wrote {path} for devices, and {key_path} (mode 600), which never leaves this machine"


def _sign(
    subject: tuple[x509.Name, ec.EllipticCurvePrivateKey],
    issuer: tuple[x509.Name, ec.EllipticCurvePrivateKey],
    good: tuple[datetime, int],
    *extensions: x509.ExtensionType,
) -> x509.Certificate:
    """A certificate that is good from now on, for so many days."""
    (name, key), (issuer_name, issuer_key), (now, days) = subject, issuer, good
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer_name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + timedelta(days=days))
    )
    for extension in extensions:
        is_critical = isinstance(extension, x509.BasicConstraints | x509.KeyUsage)
        builder = builder.add_extension(extension, critical=is_critical)
    return builder.sign(issuer_key, hashes.SHA256())


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
    return (
        set(found) == set(names)
        and key.public_key() == certificate.public_key()
        and certificate.not_valid_after_utc - _RENEW_BEFORE > now.astimezone(UTC)
    )


def _names(hosts: Sequence[str]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = []
    faults: list[str] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            if len(host) > _NAME_CHARACTERS or not _HOST.fullmatch(host):
                faults.append(f"{host!r} is neither a host name nor an IP address; write it without scheme and port")
            else:
                names.append(x509.DNSName(host))
    if not hosts:
        faults.append("no name was given under which devices reach this server; give --host")
    if faults:
        raise ConfigurationError(faults, "certificates")
    return names


def _pem(what: x509.Certificate | ec.EllipticCurvePrivateKey) -> bytes:
    if isinstance(what, x509.Certificate):
        return what.public_bytes(serialization.Encoding.PEM)
    form = serialization.PrivateFormat.PKCS8
    return what.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
