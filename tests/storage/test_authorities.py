"""A file of authorities that cannot be used is told by name, and by whoever named it."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from asyncrec.errors import StorageError
from asyncrec.storage import trusting


def test_the_machines_own_are_trusted_where_none_are_named() -> None:
    context = trusting(None, named_by="ca_file", what="opening x")
    assert context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize("content", [None, "no certificate", ""])
def test_a_file_that_is_missing_or_none_is_told_with_who_named_it(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "authorities.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(StorageError, match=r"opening x: .*authorities\.pem, the authorities named by CA_VARIABLE: "):
        trusting(str(path), named_by="CA_VARIABLE", what="opening x")
