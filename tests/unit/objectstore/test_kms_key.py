"""Keys of AWS KMS."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from statecore.errors import Invalid, Retryable
from statecore.objectstore.user_keys import user_key_of
from tests.harness import kms_server
from tests.harness.kms_server import KmsServer
from tests.harness.raising import raises
from tests.harness.s3_server import ACCESS, REGION, SECRET

DATA_KEY = bytes(range(32))
ARN = "arn:aws:kms:eu-central-1:111122223333:key/1"


@pytest.fixture
def kms(monkeypatch: pytest.MonkeyPatch) -> Iterator[KmsServer]:
    with kms_server.serving("alias/one", "alias/two", ARN) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_KMS", server.endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        monkeypatch.setenv("AWS_REGION", REGION)
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        yield server


def test_a_data_key_is_encrypted_by_the_service_for_its_repository(kms: KmsServer) -> None:
    key = user_key_of("kms:alias/one")
    encrypted = key.encrypt(DATA_KEY, "one")
    assert DATA_KEY not in encrypted
    assert key.decrypt(encrypted, "one") == DATA_KEY
    assert kms.asked == ["Encrypt", "Decrypt"]
    for wrong, repository in ((key, "two"), (user_key_of("kms:alias/two"), "one")):
        with raises(Invalid, "encryption-key-wrong", key=wrong.reference):
            wrong.decrypt(encrypted, repository)


def test_the_region_of_a_key_is_in_its_arn(kms: KmsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_REGION")
    key = user_key_of(f"kms:{ARN}")
    assert key.decrypt(key.encrypt(DATA_KEY, "one"), "one") == DATA_KEY
    with raises(Retryable, "key-service-unavailable", key="kms:alias/one"):
        user_key_of("kms:alias/one").encrypt(DATA_KEY, "one")


@pytest.mark.parametrize(
    ("answer", "kind", "code"),
    [
        ("AccessDeniedException", Invalid, "key-service-refused"),
        ("DisabledException", Invalid, "key-service-refused"),
        ("KMSInternalException", Retryable, "key-service-unavailable"),
        ("ThrottlingException", Retryable, "key-service-unavailable"),
        ("ExpiredTokenException", Retryable, "object-store-credentials-expired"),
    ],
)
def test_a_refusal_says_whether_a_retry_can_help(kms: KmsServer, answer: str, kind: type, code: str) -> None:
    kms.refusing = answer
    with raises(kind, code, key="kms:alias/one", answer=answer):
        user_key_of("kms:alias/one").encrypt(DATA_KEY, "one")


def test_a_key_that_does_not_exist_is_refused(kms: KmsServer) -> None:
    with raises(Invalid, "key-service-refused", answer="NotFoundException"):
        user_key_of("kms:alias/none").encrypt(DATA_KEY, "one")
