"""Clients share what they trust, unless one adds to it."""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path
from typing import Any

import certifi
import pytest
from asyncrec_s3.tls import AsyncioSession, TrioSession


def _context(session: Any) -> ssl.SSLContext:
    """What it will trust, and how it will check it."""
    context: ssl.SSLContext = session._build_verify_context()
    assert context.check_hostname == (session._verify is not False)
    return context


@pytest.mark.parametrize("kind", [AsyncioSession, TrioSession])
def test_clients_that_trust_the_same_share_it(kind: Any) -> None:
    context = _context(kind())
    assert context is _context(kind(max_pool_connections=3))
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.get_ca_certs()


@pytest.mark.parametrize("kind", [AsyncioSession, TrioSession])
def test_a_file_of_authorities_is_read_again_only_when_it_has_changed(kind: Any, tmp_path: Path) -> None:
    path = tmp_path / "authorities.pem"
    shutil.copy(certifi.where(), path)
    before = _context(kind(verify=str(path)))
    assert before is _context(kind(verify=str(path)))
    assert before is not _context(kind())
    one = before.get_ca_certs(binary_form=True)[0]
    path.write_text(ssl.DER_cert_to_PEM_cert(one))
    assert _context(kind(verify=str(path))).get_ca_certs(binary_form=True) == [one]


@pytest.mark.parametrize("kind", [AsyncioSession, TrioSession])
@pytest.mark.parametrize(
    "own", [{"verify": False}, {"proxies": {"https": "http://127.0.0.1:1"}}, {"client_cert": "mine.pem"}]
)
def test_a_client_with_a_proxy_a_certificate_or_no_check_has_its_own(kind: Any, own: dict[str, Any]) -> None:
    """The SDK adds to it, or checks nothing, and the others are to know nothing of that."""
    shared = _context(kind())
    assert _context(kind(**own)) is not shared
    assert _context(kind()) is shared
    assert shared.verify_mode is ssl.CERT_REQUIRED
