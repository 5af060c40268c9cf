"""Translates errors of S3 and boto3 into this library's error kinds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from statecore.errors import Capacity, Invalid, NotFound, Retryable, StatecoreError
from statecore.objectstore.base import RESTORE_ARCHIVED
from statecore.objectstore.s3_credentials import EXPIRED, RENEW, UNKNOWN_KEY
from statecore.objectstore.s3_location import S3Location

CONFLICT, EXISTS, NO_RANGE = 409, 412, 416
"""HTTP statuses of conditional and range requests."""


class _Refusal(NamedTuple):
    """What an error code of S3 means: the error to raise, the cause as a sentence, and what to do."""

    kind: type[StatecoreError]
    code: str
    cause: str
    action: str


_FULL = _Refusal(Capacity, "object-store-full", "", "Free space there, or raise the quota, then run this again.")
_CLOCK = _Refusal(
    Invalid,
    "object-store-clock-skewed",
    "A signature is valid for 15 minutes.",
    "Set the clock of this machine, or that of the object store.",
)
_EXPIRED = _Refusal(
    Retryable,
    "object-store-credentials-expired",
    "The temporary credentials have expired, and a new session found no newer ones.",
    RENEW,
)
_KEY = _Refusal(
    Invalid,
    "object-store-access-denied",
    "The object store does not know the access key: it was deleted, replaced, or belongs to another store.",
    "Check AWS_ACCESS_KEY_ID, the profile (AWS_PROFILE), or in Airflow the connection of STATECORE_AWS_CONN; and the "
    "endpoint.",
)
_SIGNATURE = _Refusal(
    Invalid,
    "object-store-access-denied",
    "The secret key does not belong to the access key, a proxy changes the request, or the server does not support "
    "checksums in requests (as Google Cloud Storage).",
    "Check AWS_SECRET_ACCESS_KEY, or in Airflow the connection of STATECORE_AWS_CONN, and any proxy. A server without "
    "such checksums cannot hold a repository.",
)
_RIGHTS = _Refusal(
    Invalid,
    "object-store-access-denied",
    "The user or role is known, and lacks a permission.",
    "Grant it s3:ListBucket on the bucket, and s3:GetObject, s3:PutObject, s3:DeleteObject and "
    "s3:AbortMultipartUpload below the prefix; with encryption=aws:kms also kms:GenerateDataKey and kms:Decrypt on the "
    "key. If the requester pays for this bucket, add request-payer=requester to the URL.",
)
_LOCKED = _Refusal(
    Invalid,
    "object-store-locked",
    "Object Lock protects the object.",
    "Run this again when the lock has expired; nothing is lost. A bucket whose objects are all locked for a time "
    "cannot hold a repository, unless it keeps versions.",
)
_ARCHIVED = _Refusal(
    Invalid,
    "blob-archived",
    "The object was moved to an archive (Glacier, Deep Archive, or an archive tier of Intelligent-Tiering).",
    RESTORE_ARCHIVED,
)
_SERVER_KEY = _Refusal(
    Invalid,
    "key-service-refused",
    "The object store cannot use the key of AWS KMS that it encrypts the objects with.",
    "Enable the key, or cancel its deletion, then run this again. What was encrypted with a deleted key is lost.",
)
_ACCOUNT = _Refusal(
    Invalid, "object-store-access-denied", "The account is suspended.", "Ask the owner of the account for the reason."
)
_REGION = _Refusal(
    Invalid,
    "object-store-settings-invalid",
    "The bucket is in another region than the request.",
    "Set the region of the bucket: region=... in the URL, or AWS_REGION.",
)
_STYLE = _Refusal(
    Invalid,
    "object-store-settings-invalid",
    "The server wants the bucket in the host name.",
    "Add addressing=virtual to the URL.",
)
_CHECKSUMS = _Refusal(
    Invalid,
    "object-store-unsuitable",
    "The server does not support checksums in requests.",
    "Use another server: without these checksums damage would not be detected.",
)
_PASSING = _Refusal(
    Retryable, "object-store-unavailable", "", "Check the health of the object store, then run this again."
)
_NOT_OF_S3 = _Refusal(
    Retryable,
    "object-store-unavailable",
    "The answer is no error of S3, so it does not say whether the blob exists: it may be of a gateway that has no "
    "object store behind it now, or the endpoint is wrong.",
    "Check the health of the object store and of what is before it, and the endpoint (AWS_ENDPOINT_URL), then run this "
    "again.",
)
_OTHER = _Refusal(
    Invalid,
    "object-store-refused",
    "",
    "Check the location, its region and endpoint, and what the server supports.",
)

_REFUSALS: Mapping[str, _Refusal] = {
    **dict.fromkeys(("QuotaExceeded", "XMinioStorageFull", "InsufficientCapacity", "EntityTooLarge"), _FULL),
    **dict.fromkeys(("RequestTimeTooSkewed", "RequestExpired", "RequestInTheFuture"), _CLOCK),
    **dict.fromkeys(EXPIRED, _EXPIRED),
    **dict.fromkeys(UNKNOWN_KEY, _KEY),
    "SignatureDoesNotMatch": _SIGNATURE,
    **dict.fromkeys(("AccessDenied", "403", "Forbidden"), _RIGHTS),
    "InvalidObjectState": _ARCHIVED,
    **dict.fromkeys(("AccountProblem", "AllAccessDisabled"), _ACCOUNT),
    **dict.fromkeys(
        ("PermanentRedirect", "301", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"), _REGION
    ),
    "SecondLevelDomainForbidden": _STYLE,
    **dict.fromkeys(
        (
            *("SlowDown", "RequestTimeout", "OperationAborted", "ConditionalRequestConflict", "BadDigest"),
            *("NoSuchUpload", "Throttling", "ThrottlingException", "RequestThrottled", "XAmzContentSHA256Mismatch"),
            *("KMS.ThrottlingException", "XAmzContentChecksumMismatch"),
        ),
        _PASSING,
    ),
}
"""Error codes of S3 and of compatible servers."""

NOT_THERE = ("NoSuchKey", "NotFound")
"""Error codes for an object that does not exist. A status 404 alone may be of anything on the way."""

MISSING = 404
"""HTTP status of an answer about an object that does not exist, and of many others."""

_OF_KMS = "KMS."  # begins the codes of a refusal by AWS KMS
_NO_CODES = ("", "404")  # botocore's, for an answer without an error of S3
_NO_SUPPORT = ("InvalidArgument", "InvalidRequest", "NotImplemented")
_CREDENTIALS = ("NoCredentialsError", "PartialCredentialsError", "SSOTokenLoadError", "ProfileNotFound")
_RENEWALS = ("CredentialRetrievalError", "TokenRetrievalError", "UnauthorizedSSOTokenError")
_SETTINGS = ("NoRegionError", "InvalidEndpointConfigurationError", "ParamValidationError", "EndpointProviderError")
_ERROR = re.compile(rb"\s*(?:<\?xml[^>]*>)?\s*<Error>(.*)</Error>", re.DOTALL)
_FIELD = re.compile(rb"<(Code|Message)>([^<]*)</")
_SERVER_ERRORS = 500
_INSUFFICIENT_STORAGE = 507
_NOT_IMPLEMENTED = 501


def status_of(error: Any) -> int:
    """The HTTP status of a ``ClientError``; 0 without one."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def error_in(body: bytes) -> Exception | None:
    """The ``ClientError`` of an answer with status 200 whose body is an error of S3; ``None`` if it is none.

    Its status counts as 500, as botocore has it for requests whose answers it parses.
    """
    from botocore.exceptions import ClientError

    if (found := _ERROR.match(body)) is None:
        return None
    error = {name.decode(): text.decode(errors="replace") for name, text in _FIELD.findall(found[1])}
    answer = {"Error": error, "ResponseMetadata": {"HTTPStatusCode": _SERVER_ERRORS}}
    refusal: Exception = ClientError(answer, "GetObject")
    return refusal


def was_sent_again(error: Any) -> bool:
    """Whether botocore had retried the request, so that a reply may have been lost."""
    return int(error.response.get("ResponseMetadata", {}).get("RetryAttempts", 0)) > 0


def s3_error(location: S3Location, doing: str, name: str, error: Exception, client: Any = None) -> StatecoreError:
    """The error to raise for one of botocore's."""
    endpoint = location.endpoint or (client.meta.endpoint_url if client is not None else "")
    where = {"blob": name, "location": str(location), "endpoint": endpoint}
    asked = f" Endpoint: {endpoint}." if endpoint else ""
    failed = f"The blob {name} in {location} could not be {doing}" if name else f"{location} could not be {doing}"
    response = getattr(error, "response", None)
    if response is None:
        return _of_the_client(failed, error, where)
    code = str(response.get("Error", {}).get("Code", ""))
    status = status_of(error)
    where["answer"] = code or str(status)
    if code == "NoSuchBucket":
        return Invalid(
            f"There is no bucket {location.bucket}.{asked}",
            code="bucket-unknown",
            action="Create it, or check its name, the endpoint and the region.",
            **where,
        )
    if code in NOT_THERE and doing not in ("put", "listed"):
        return NotFound(
            f"There is no blob {name} in {location}.",
            code="blob-not-found",
            action="Check that this is the right location.",
            **where,
        )
    message = str(response.get("Error", {}).get("Message") or code or error).rstrip(".")
    refusal = _refusal_of(code, status, message)
    cause = f" {refusal.cause}" if refusal.cause else ""
    region = _region_of(response)
    if refusal is _REGION and region:
        cause = f" The bucket is in the region {region}."
        where["region"] = region
    return refusal.kind(
        f"{failed}: {message} ({code or status}).{cause}{asked}", code=refusal.code, action=refusal.action, **where
    )


def _refusal_of(code: str, status: int, message: str) -> _Refusal:
    if code in _NO_SUPPORT and "checksum" in message.lower():
        return _CHECKSUMS
    if any(word in message.lower() for word in ("object lock", "worm protected")):
        return _LOCKED
    if code in _REFUSALS:
        return _REFUSALS[code]
    if status == MISSING and code in _NO_CODES:
        return _NOT_OF_S3
    if status == _INSUFFICIENT_STORAGE:
        return _FULL
    if code.startswith(_OF_KMS) and status < _SERVER_ERRORS:
        return _SERVER_KEY
    if status in (401, 403):
        return _RIGHTS
    if (status >= _SERVER_ERRORS and status != _NOT_IMPLEMENTED) or status in (0, 408, 429, CONFLICT):
        return _PASSING
    return _OTHER


def _region_of(response: Any) -> str:
    """The region of the bucket, as far as the server says it."""
    headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return str(response.get("Error", {}).get("Region") or headers.get("x-amz-bucket-region") or "")


def not_s3(location: S3Location, doing: str, name: str, why: str, client: Any) -> Invalid:
    """The error to raise if the server cannot be S3: a proxy, another web server, an endpoint with a wrong path."""
    endpoint = client.meta.endpoint_url
    what = f"The blob {name} in {location}" if name else str(location)
    return Invalid(
        f"{what} could not be {doing}: the server at {endpoint} does not speak S3: {why}.",
        code="object-store-settings-invalid",
        action="Check the endpoint (AWS_ENDPOINT_URL), and any proxies before it.",
        blob=name,
        location=str(location),
        endpoint=endpoint,
    )


def _of_the_client(failed: str, error: Exception, where: dict[str, str]) -> StatecoreError:
    """The error for one that is not an answer of a server."""
    kind, message_text = type(error).__name__, f"{failed}: {str(error).rstrip('.')}."
    where = {**where, "cause": kind}
    if kind in _CREDENTIALS:
        return Invalid(
            message_text,
            code="object-store-credentials-missing",
            action="Give this machine credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile "
            "(AWS_PROFILE), or a role.",
            **where,
        )
    if kind in _RENEWALS:
        return Retryable(message_text, code=_EXPIRED.code, action=RENEW, **where)
    if kind in _SETTINGS:
        return Invalid(
            message_text,
            code="object-store-settings-invalid",
            action="Check the endpoint and the region (AWS_ENDPOINT_URL, AWS_REGION).",
            **where,
        )
    return Retryable(
        message_text,
        code="object-store-unreachable",
        action="Check that this machine can reach the object store, then run this again.",
        **where,
    )
