"""Finds the key of a user by its reference (:mod:`statecore.objectstore.user_key`)."""

from __future__ import annotations

from statecore.errors import Invalid
from statecore.objectstore.kms_key import KmsKey
from statecore.objectstore.user_key import EnvironmentKey, FileKey, UserKey


def user_key_of(reference: str) -> UserKey:
    """The key that a reference names. Raises ``Invalid`` if it is none."""
    scheme, _, rest = reference.partition(":")
    if rest and scheme == "env":
        return EnvironmentKey(reference)
    if scheme == "file" and rest.startswith("/"):
        return FileKey(reference)
    if rest and scheme == "kms":
        return KmsKey(reference)
    shown = reference if scheme in ("file", "env", "kms") else "The given value"  # which may be a key itself
    raise Invalid(
        f"{shown} does not say where an encryption key is.",
        code="encryption-key-invalid",
        action="Give file:/path of a file, env:NAME of a variable, or kms:KEY of AWS KMS; never the key itself.",
    )
