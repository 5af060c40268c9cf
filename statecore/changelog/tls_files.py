"""Names the TLS file of a client's settings that cannot be used; Python's own errors name none."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

_CERTIFICATES = ("ssl_cafile", "ssl_crlfile", "ssl_certfile")


class TlsFileProblem(NamedTuple):
    """A file that cannot be used: the setting that names it, and what is wrong, as the end of a sentence."""

    setting: str
    what: str


def tls_file_problem(kafka: Mapping[str, Any]) -> TlsFileProblem | None:
    """The first unusable file of the settings ``ssl_cafile``, ``ssl_crlfile``, ``ssl_certfile`` and ``ssl_keyfile``."""
    files = {name: Path(kafka[name]) for name in (*_CERTIFICATES, "ssl_keyfile") if kafka.get(name)}
    for setting, path in files.items():
        try:
            path.read_bytes()
        except OSError as error:
            return TlsFileProblem(setting, f"{path} cannot be read ({error.strerror or error})")
    for setting in files.keys() & set(_CERTIFICATES):
        try:
            ssl.create_default_context(cafile=str(files[setting]))
        except (ssl.SSLError, ValueError) as error:
            return TlsFileProblem(setting, f"{files[setting]} has no certificate in PEM ({_reason(error)})")
    return _key_problem(files["ssl_certfile"], files.get("ssl_keyfile"), kafka) if "ssl_certfile" in files else None


def _key_problem(certificate: Path, key: Path | None, kafka: Mapping[str, Any]) -> TlsFileProblem | None:
    password, file = str(kafka.get("ssl_password") or ""), key or certificate
    try:
        ssl.create_default_context().load_cert_chain(certificate, key, password)  # with None OpenSSL would ask for one
    except (ssl.SSLError, ValueError) as error:
        if "KEY_VALUES_MISMATCH" in str(error):
            return TlsFileProblem("ssl_keyfile", f"{file} is not the key of {certificate}")
        if b"ENCRYPTED" in file.read_bytes():
            what = "does not open the key" if password else "is missing or empty, and encrypts the key"
            return TlsFileProblem("ssl_password", f"it {what} {file}")
        return TlsFileProblem("ssl_keyfile", f"{file} has no key in PEM ({_reason(error)})")
    return None


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)
