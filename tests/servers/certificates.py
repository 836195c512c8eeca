"""A certificate for servers on this machine, which only those trust who are given it."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Certificate"]


@dataclass(frozen=True)
class Certificate:
    """Of 127.0.0.1, localhost and bucket.localhost.

    Attributes:
        path: of the file in PEM form: what a client is to trust.
        server: the context of a server that has it.
        client: the context of a client that trusts it, and nothing else.
    """

    path: Path
    server: ssl.SSLContext
    client: ssl.SSLContext

    @classmethod
    def made(cls, folder: Path) -> Certificate:
        """Make one, by openssl."""
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
