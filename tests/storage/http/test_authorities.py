"""Errors about an unusable file of certificate authorities name the file and the option or variable that set it."""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path

import certifi
import pytest

from asyncrec.errors import StorageError
from asyncrec.storage.http import trusting


def test_default_context_trusts_system_authorities() -> None:
    context = trusting(None, named_by="ca_file", what="opening x")
    assert context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize("content", [None, "no certificate", ""])
def test_bad_certificate_file_error_names_operation(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "authorities.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(StorageError, match="opening x: the certificate file"):
        trusting(str(path), named_by="CA_VARIABLE", what="opening x")


def test_context_is_private_unless_shared() -> None:
    assert trusting(None, named_by="ca_file", what="opening x") is not trusting(None, named_by="ca_file", what="x")


def test_certificate_file_is_reread_only_after_change(tmp_path: Path) -> None:
    path = tmp_path / "authorities.pem"
    shutil.copy(certifi.where(), path)
    contexts = [trusting(str(path), named_by="ca_file", what="opening x", shared=True) for _ in range(2)]
    assert contexts[0] is contexts[1]
    (one,) = contexts[0].get_ca_certs(binary_form=True)[:1]
    path.write_text(ssl.DER_cert_to_PEM_cert(one))
    fresh = trusting(str(path), named_by="ca_file", what="opening x", shared=True)
    assert fresh.get_ca_certs(binary_form=True) == [one]
    assert len(contexts[0].get_ca_certs()) > 1


def test_shared_contexts_of_different_origins_are_distinct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A context for one file or variable is never used for a different one."""
    path = tmp_path / "authorities.pem"
    shutil.copy(certifi.where(), path)
    named = trusting(str(path), named_by="ca_file", what="opening x", shared=True)
    assert trusting(None, named_by="ca_file", what="opening x", shared=True) is not named
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    default = trusting(None, named_by="ca_file", what="opening x", shared=True)
    monkeypatch.delenv("SSL_CERT_FILE")
    assert trusting(None, named_by="ca_file", what="opening x", shared=True) is not default
