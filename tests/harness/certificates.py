"""Certificates for a broker's TLS listeners, created for each test run: an authority, and what it signs, as PEM."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Certificate:
    """A certificate with its private key.

    Attributes:
        certificate: PEM file of the certificate.
        key: PEM file of the key (PKCS 8), unencrypted.
        keystore: PEM file of both, as Kafka takes it with ``ssl.keystore.type=PEM``.
    """

    certificate: Path
    key: Path
    keystore: Path


class Authority:
    """A certificate authority of its own, self-signed.

    Args:
        directory: where its files go; made when it is absent.
        name: its common name.
    """

    def __init__(self, directory: Path, name: str = "authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(True, 0), critical=True)
        self.file = directory / f"{name}.pem"
        """PEM file of the authority's certificate: what clients and brokers trust."""
        self.file.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))

    def sign(self, name: str, addresses: tuple[str, ...] = ()) -> Certificate:
        """A certificate for a host (with its addresses) or a client.

        Args:
            name: its common name.
            addresses: IP addresses it is valid for; without any it fits no host.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key)
        others = [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        builder = builder.add_extension(x509.SubjectAlternativeName([*others, x509.DNSName(name)]), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        made = Certificate(*(self._directory / f"{name}.{end}" for end in ("crt", "key", "pem")))
        made.certificate.write_bytes(certificate)
        made.key.write_bytes(private)
        made.keystore.write_bytes(private + certificate)
        return made

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=2))
        )
