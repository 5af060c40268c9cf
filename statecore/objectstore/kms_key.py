"""A key of AWS KMS that encrypts the data key of a repository: one request for each process that opens it."""

from __future__ import annotations

from typing import Any

from statecore.errors import Invalid, Retryable, StatecoreError
from statecore.extras import require
from statecore.objectstore.s3_credentials import EXPIRED, RENEW
from statecore.objectstore.s3_errors import status_of
from statecore.objectstore.s3_location import region_of_other_sdks
from statecore.objectstore.user_key import UserKey

_ANOTHER_KEY = ("InvalidCiphertextException", "IncorrectKeyException")
_PASSING = ("ThrottlingException", "DependencyTimeoutException", "KeyUnavailableException")
_SERVER_ERROR = 500


class KmsKey(UserKey):
    """A key of AWS KMS; credentials are found as for S3."""

    def encrypt(self, data_key: bytes, repository_id: str) -> bytes:
        answer = self._asked("encrypt", repository_id, Plaintext=data_key)
        return bytes(answer["CiphertextBlob"])

    def decrypt(self, encrypted: bytes, repository_id: str) -> bytes:
        answer = self._asked("decrypt", repository_id, CiphertextBlob=encrypted)
        return bytes(answer["Plaintext"])

    def _asked(self, operation: str, repository_id: str, **content: bytes) -> Any:
        require("s3")
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError

        key = self.reference.partition(":")[2]
        parts = key.split(":")  # of an ARN: arn:aws:kms:REGION:ACCOUNT:key/ID
        region = parts[3] if len(parts) > 3 and parts[0] == "arn" else region_of_other_sdks()
        try:
            client = boto3.client("kms", region_name=region, config=Config(retries={"mode": "standard"}))
            return getattr(client, operation)(
                KeyId=key, EncryptionContext={"statecore-repository": repository_id}, **content
            )
        except ClientError as error:
            raise self._refused(operation, repository_id, error) from error
        except (BotoCoreError, ValueError) as error:
            raise Retryable(
                f"AWS KMS could not be asked to {operation} with {self.reference}: {str(error).rstrip('.')}.",
                code="key-service-unavailable",
                action="Check the region, the credentials and the network (AWS_REGION, AWS_PROFILE, "
                "AWS_ENDPOINT_URL_KMS), then run this again.",
                key=self.reference,
            ) from error

    def _refused(self, operation: str, repository_id: str, error: Any) -> StatecoreError:
        code = str(error.response["Error"]["Code"])
        if operation == "decrypt" and code in _ANOTHER_KEY:
            return self.wrong(repository_id)
        message = str(error.response["Error"].get("Message") or "no reason given").rstrip(".")
        what = f"AWS KMS refused to {operation} with {self.reference}: {message} ({code})."
        where = {"key": self.reference, "answer": code}
        if code in EXPIRED:
            return Retryable(what, code="object-store-credentials-expired", action=RENEW, **where)
        if code in _PASSING or status_of(error) >= _SERVER_ERROR:
            action = "Check the health of AWS KMS, then run this again."
            return Retryable(what, code="key-service-unavailable", action=action, **where)
        return Invalid(
            what,
            code="key-service-refused",
            action="Check that this is the key of the repository, that it exists and is enabled, and grant "
            "kms:Decrypt on it; for repo init, copy and rotate-key also kms:Encrypt.",
            **where,
        )
