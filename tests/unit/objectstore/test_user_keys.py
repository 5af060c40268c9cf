"""References of users' keys."""

from __future__ import annotations

import base64

import pytest

from statecore.errors import Invalid
from statecore.objectstore.kms_key import KmsKey
from statecore.objectstore.user_key import EnvironmentKey, FileKey
from statecore.objectstore.user_keys import user_key_of
from tests.harness.raising import raises


def test_the_scheme_says_what_kind_of_key_it_is() -> None:
    for reference, kind in (("file:/k", FileKey), ("env:K", EnvironmentKey), ("kms:alias/k", KmsKey)):
        key = user_key_of(reference)
        assert (type(key), key.reference) == (kind, reference)


@pytest.mark.parametrize("reference", ["", "file:", "file:key", "env:", "kms:", "/etc/key", "https://key"])
def test_others_are_refused(reference: str) -> None:
    with raises(Invalid, "encryption-key-invalid"):
        user_key_of(reference)


def test_a_key_given_in_place_of_a_reference_is_not_shown() -> None:
    key = base64.b64encode(bytes(range(32))).decode()
    with raises(Invalid, "encryption-key-invalid") as caught:
        user_key_of(key)
    assert key not in str(caught.value)
