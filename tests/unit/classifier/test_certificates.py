"""Our own certificate authority, and certificates that change while they are used."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from cryptography import x509

from shared.runtime.certificates import (
    RENEW_DAYS,
    SERVING_DAYS,
    CertificateFolder,
    ReloadingContext,
)

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
NAMES = ("webhook.sluicegate.svc", "127.0.0.1")


def serial(path: Path) -> int:
    return x509.load_pem_x509_certificate(path.read_bytes()).serial_number


def test_empty_folder_gets_authority_and_certificate_for_the_names(tmp_path: Path) -> None:
    folder = CertificateFolder(tmp_path / "new", NAMES)

    assert folder.ensure(NOW)

    authority = x509.load_pem_x509_certificate(folder.ca_bundle())
    serving = x509.load_pem_x509_certificate(folder.certificate.read_bytes())
    serving.verify_directly_issued_by(authority)
    names = serving.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["webhook.sluicegate.svc"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert serving.not_valid_after_utc == NOW + timedelta(days=SERVING_DAYS)
    for key in (folder.key, folder.authority_key):
        assert key.stat().st_mode & 0o077 == 0, "nobody else reads a private key"


def test_valid_certificate_stays(tmp_path: Path) -> None:
    folder = CertificateFolder(tmp_path, NAMES)
    folder.ensure(NOW)

    assert not folder.ensure(NOW + timedelta(days=SERVING_DAYS - RENEW_DAYS))


def test_certificate_is_renewed_before_expiry_and_authority_stays(tmp_path: Path) -> None:
    folder = CertificateFolder(tmp_path, NAMES)
    folder.ensure(NOW)
    before, authority = serial(folder.certificate), folder.ca_bundle()

    assert folder.ensure(NOW + timedelta(days=SERVING_DAYS - RENEW_DAYS, seconds=1))

    assert serial(folder.certificate) != before
    assert folder.ca_bundle() == authority


def test_new_name_issues_new_certificate(tmp_path: Path) -> None:
    CertificateFolder(tmp_path, NAMES).ensure(NOW)

    assert CertificateFolder(tmp_path, (*NAMES, "other.example")).ensure(NOW)
    assert not CertificateFolder(tmp_path, ["127.0.0.1"]).ensure(NOW), "fewer names are covered"


def test_foreign_certificate_is_never_overwritten(tmp_path: Path) -> None:
    folder = CertificateFolder(tmp_path, ["other.example"])
    write(folder, trustme.CA())
    before = folder.certificate.read_bytes()

    assert not folder.ensure(NOW + timedelta(days=100_000))
    assert folder.certificate.read_bytes() == before


def write(folder: CertificateFolder, authority: trustme.CA) -> None:
    issued = authority.issue_cert("127.0.0.1")
    folder.certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    folder.key.write_bytes(issued.private_key_pem.bytes())


def test_changed_files_are_reloaded_and_unchanged_are_not(tmp_path: Path) -> None:
    folder = CertificateFolder(tmp_path, ["127.0.0.1"])
    write(folder, trustme.CA())
    tls = ReloadingContext(folder.certificate, folder.key)

    assert not tls.refresh()
    write(folder, trustme.CA())
    assert tls.refresh()
    assert not tls.refresh()


def test_certificate_without_its_key_is_not_loaded(tmp_path: Path) -> None:
    folder = CertificateFolder(tmp_path, ["127.0.0.1"])
    write(folder, trustme.CA())
    tls = ReloadingContext(folder.certificate, folder.key)
    old_key = folder.key.read_bytes()
    write(folder, trustme.CA())
    new_key = folder.key.read_bytes()

    folder.key.write_bytes(old_key)
    assert not tls.refresh()
    assert "tls.crt" in (tls.error or "")
    folder.certificate.write_text("no certificate")
    assert not tls.refresh()
    folder.certificate.unlink()
    assert not tls.refresh()

    write(folder, trustme.CA())
    assert tls.refresh()
    assert tls.error is None
    assert new_key != folder.key.read_bytes()


def test_missing_files_give_no_tls_context(tmp_path: Path) -> None:
    folder = CertificateFolder(tmp_path, ["127.0.0.1"])

    with pytest.raises(FileNotFoundError):
        ReloadingContext(folder.certificate, folder.key)
    folder.certificate.write_text("x")
    folder.key.write_text("x")
    with pytest.raises(ssl.SSLError):
        ReloadingContext(folder.certificate, folder.key)
