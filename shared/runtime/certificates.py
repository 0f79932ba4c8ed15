"""A certificate authority of Sluicegate, its serving certificates, and reloading without restart.

In a cluster another program renews the files of a Secret; on a laptop this module issues them. In both
cases `ReloadingContext` loads changed files; open connections keep their certificate.
"""

import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS: Final = 3650
"""Long: changing it means changing the `caBundle` of every webhook configuration."""

SERVING_DAYS: Final = 90
RENEW_DAYS: Final = 30
"""A serving certificate with less than this left is replaced."""

_CLOCK_SKEW: Final = timedelta(hours=1)
_COMMON_NAME_MAX: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def certificate_pem(self) -> bytes:
        """Return it as PEM: for `tls.crt`, or as authority for `caBundle`."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def key_pem(self) -> bytes:
        """Return the key as unencrypted PEM, as servers read it."""
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )


def issue_authority(now: datetime) -> KeyPair:
    """Make a certificate authority that signs serving certificates and nothing else."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("sluicegate authority")
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
        _builder(name, name, key, now, days=AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return KeyPair(certificate=certificate, key=key)


def issue_serving(authority: KeyPair, names: Sequence[str], now: datetime) -> KeyPair:
    """Make a server's certificate for DNS names and IP addresses."""
    return _issue(authority, names, ExtendedKeyUsageOID.SERVER_AUTH, now)


def issue_client(authority: KeyPair, name: str, now: datetime) -> KeyPair:
    """Make a certificate that a client shows to a server that verifies clients."""
    return _issue(authority, (name,), ExtendedKeyUsageOID.CLIENT_AUTH, now)


def _issue(
    authority: KeyPair, names: Sequence[str], usage: x509.ObjectIdentifier, now: datetime
) -> KeyPair:
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = authority.certificate.subject
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    certificate = (
        _builder(_name(names[0][:_COMMON_NAME_MAX]), issuer, key, now, days=SERVING_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_general_name(n) for n in names]), False)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(identifier, critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return KeyPair(certificate=certificate, key=key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    *,
    days: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


class CertificateFolder:
    """`ca.crt`, `tls.crt`, `tls.key`; with a `ca.key` next to them, Sluicegate renews them."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self._path = path
        self._names = tuple(names)
        self.authority_certificate = path / "ca.crt"
        self.authority_key = path / "ca.key"
        self.certificate = path / "tls.crt"
        self.key = path / "tls.key"

    def ensure(self, now: datetime) -> bool:
        """Create or renew certificates; return whether a file was written.

        Without `ca.key` another program owns the files: they are used and never written.
        """
        if self.authority_key.is_file():
            authority = self._authority()
        elif self.certificate.is_file():
            return False
        else:
            self._path.mkdir(parents=True, exist_ok=True)
            authority = issue_authority(now)
            # The key last: a folder with it is complete.
            _replace(self.authority_certificate, authority.certificate_pem())
            _replace(self.authority_key, authority.key_pem())
        if self._is_good(now):
            return False
        serving = issue_serving(authority, self._names, now)
        _replace(self.key, serving.key_pem())
        _replace(self.certificate, serving.certificate_pem())
        return True

    def ca_bundle(self) -> bytes:
        """Return the authority for a webhook configuration: PEM, not yet base64."""
        return self.authority_certificate.read_bytes()

    def _authority(self) -> KeyPair:
        key = serialization.load_pem_private_key(self.authority_key.read_bytes(), password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{self.authority_key}: not a key that was made here")  # noqa: TRY004
        certificate = x509.load_pem_x509_certificate(self.authority_certificate.read_bytes())
        return KeyPair(certificate=certificate, key=key)

    def _is_good(self, now: datetime) -> bool:
        if not (self.certificate.is_file() and self.key.is_file()):
            return False
        certificate = x509.load_pem_x509_certificate(self.certificate.read_bytes())
        if certificate.not_valid_after_utc - now < timedelta(days=RENEW_DAYS):
            return False
        alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        return {_general_name(name) for name in self._names} <= set(alternative.value)


def _replace(path: Path, content: bytes) -> None:
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    beside.touch(mode=0o600)
    beside.write_bytes(content)
    beside.replace(path)


class ReloadingContext:
    """A TLS context that reloads its files. New connections use the last loaded certificate."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = certificate
        self._key = key
        self._loaded = b""
        self.error: str | None = None
        """Why the present files cannot be loaded; None if they are in use."""
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load(self._read())

    def refresh(self) -> bool:
        """Take up files that changed; say whether that was so. Files that do not fit change nothing."""
        try:
            found = self._read()
            if found == self._loaded:
                return False
            # A pair half replaced must not reach the context in use: it would keep the
            # certificate of one and the key of the other.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._certificate, self._key)
            self._load(found)
        except (OSError, ssl.SSLError) as error:
            self.error = f"{self._certificate}: {error}"
            return False
        return True

    def _load(self, found: bytes) -> None:
        self.context.load_cert_chain(self._certificate, self._key)
        self._loaded, self.error = found, None

    def _read(self) -> bytes:
        return self._certificate.read_bytes() + self._key.read_bytes()
