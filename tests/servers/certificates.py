"""A self-signed certificate for servers on this machine, trusted only by clients that receive it."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Certificate"]


@dataclass(frozen=True)
class Certificate:
    """A certificate for 127.0.0.1, localhost and bucket.localhost.

    Attributes:
        path: the PEM file that a client must trust.
        server: the SSL context of a server with this certificate.
        client: the SSL context of a client that trusts only this certificate.
    """

    path: Path
    server: ssl.SSLContext
    client: ssl.SSLContext

    @classmethod
    def made(cls, folder: Path) -> Certificate:
        """Make a certificate with openssl."""
        path, key = folder / "certificate.pem", folder / "key.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
             "-days", "2", "-subj", "/CN=127.0.0.1", "-addext",
             "subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:bucket.localhost", "-keyout", key, "-out", path],
            check=True, capture_output=True,
        )  # fmt: skip
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(path, key)
        return cls(path, server, ssl.create_default_context(cafile=str(path)))
