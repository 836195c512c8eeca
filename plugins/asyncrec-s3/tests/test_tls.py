"""Clients share their trusted certificates, unless a client adds its own."""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path
from typing import Any

import certifi
import pytest
from aiobotocore.httpxsession import HttpxSession
from asyncrec_s3.sdk import SharingSession


def _context(session: Any) -> ssl.SSLContext:
    """Return the client's TLS context, after checking that it verifies host names by default."""
    context: ssl.SSLContext = session._build_verify_context()
    assert context.check_hostname == (session._verify is not False)
    return context


def test_clients_with_equal_trust_share_tls_context() -> None:
    context = _context(SharingSession())
    assert context is _context(SharingSession(max_pool_connections=3))
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.get_ca_certs()


def test_trio_clients_have_separate_tls_contexts() -> None:
    """httpx modifies its context."""
    assert _context(HttpxSession()) is not _context(HttpxSession())


def test_ca_file_is_reread_only_after_change(tmp_path: Path) -> None:
    path = tmp_path / "authorities.pem"
    shutil.copy(certifi.where(), path)
    before = _context(SharingSession(verify=str(path)))
    assert before is _context(SharingSession(verify=str(path)))
    assert before is not _context(SharingSession())
    one = before.get_ca_certs(binary_form=True)[0]
    path.write_text(ssl.DER_cert_to_PEM_cert(one))
    assert _context(SharingSession(verify=str(path))).get_ca_certs(binary_form=True) == [one]


@pytest.mark.parametrize(
    "own", [{"verify": False}, {"proxies": {"https": "http://127.0.0.1:1"}}, {"client_cert": "mine.pem"}]
)
def test_session_with_own_tls_settings_gets_own_context(own: dict[str, Any]) -> None:
    """The SDK adds certificates or disables checks, which must not affect other sessions."""
    shared = _context(SharingSession())
    assert _context(SharingSession(**own)) is not shared
    assert _context(SharingSession()) is shared
    assert shared.verify_mode is ssl.CERT_REQUIRED
