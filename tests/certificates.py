"""Certificates for one test: an authority, a server's for 127.0.0.1, and a client's, made with the openssl command."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.fixtures_services import unavailable

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True)
class Certificates:
    """Files in `folder`, each `NAME.pem` with its `NAME.key`: `ca`, `server`, `client`, and `other`, of nobody's."""

    folder: Path

    def certificate(self, name: str) -> Path:
        return self.folder / f"{name}.pem"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def server_options(self) -> tuple[str, ...]:
        """What a server is started with that asks every client for a certificate."""
        return (
            *("--tls-cert-file", str(self.certificate("server")), "--tls-key-file", str(self.key("server"))),
            *("--tls-ca-cert-file", str(self.certificate("ca")), "--tls-auth-clients", "yes"),
        )

    def client_options(self, authority: str = "ca", client: str = "client") -> str:
        """What stands after the question mark of a client's URL; no certificate of its own when that is empty."""
        options = f"ssl_ca_certs={self.certificate(authority)}"
        if client:
            options += f"&ssl_certfile={self.certificate(client)}&ssl_keyfile={self.key(client)}"
        return options


def make_certificates(folder: Path) -> Certificates:
    """Make them all."""
    if shutil.which("openssl") is None:
        unavailable("openssl is not installed")
    folder.mkdir(mode=0o700)
    made = Certificates(folder)
    for authority in ("ca", "other"):
        usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
        _openssl("req", "-x509", *_KEY, "-days", "2", "-subj", f"/CN={authority}", *usage, *_out(made, authority))
    # Python 3.13 takes no certificate that does not say who made it.
    extensions = folder / "extensions"
    extensions.write_text("authorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n")
    for name, alternative in (("server", "IP:127.0.0.1"), ("client", "DNS:client")):
        request = folder / f"{name}.csr"
        subject = ("-subj", f"/CN={name}", "-addext", f"subjectAltName={alternative}")
        _openssl("req", *_KEY, *subject, "-keyout", str(made.key(name)), "-out", str(request))
        by = ("-CA", str(made.certificate("ca")), "-CAkey", str(made.key("ca")), "-CAcreateserial")
        out = ("-extfile", str(extensions), "-out", str(made.certificate(name)))
        _openssl("x509", "-req", "-in", str(request), *by, "-copy_extensions", "copy", "-days", "2", *out)
    return made


def _out(made: Certificates, name: str) -> tuple[str, ...]:
    return ("-keyout", str(made.key(name)), "-out", str(made.certificate(name)))


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
