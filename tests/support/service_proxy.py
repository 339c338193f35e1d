"""A proxy on loopback that stands for every host it is asked for: what a client sends to a service's own address, by TLS, ends
here, and nothing leaves the machine. Its certificate is its own, so the client must not verify (`?verify=no`)."""

from __future__ import annotations

import ssl
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from backfill_manager.clock import UTC
from support.http_sink import Sink, _Handler, serving


class ServiceProxy(Sink):
    def __init__(self, certificate: Path) -> None:
        super().__init__()
        self.RequestHandlerClass = _Proxied
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(certificate)
        self.hosts: list[str] = []  # that clients have asked for


class _Proxied(_Handler):
    server: ServiceProxy

    def do_CONNECT(self) -> None:
        self.server.hosts.append(self.path)
        self.send_response(200)
        self.end_headers()
        self.connection = self.server.tls.wrap_socket(self.connection, server_side=True)
        self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb", 0)
        self.close_connection = False

    def finish(self) -> None:
        super().finish()
        self.connection.close()  # by TLS it is another socket than the one that the server closes


def service_proxy(folder: Path) -> AbstractContextManager[ServiceProxy]:
    return serving(ServiceProxy(_certificate(folder / "proxy.pem")))


def _certificate(path: Path) -> Path:
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1)).sign(key, hashes.SHA256())
    )  # fmt: skip
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    return path
