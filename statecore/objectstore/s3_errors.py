"""Translates errors of S3 and boto3 into this library's error kinds."""

from __future__ import annotations

from typing import Any

from statecore.errors import Capacity, Invalid, NotFound, Retryable, StatecoreError
from statecore.objectstore.s3_location import S3Location

CONFLICT, EXISTS, NO_RANGE = 409, 412, 416
"""HTTP statuses of conditional and range requests."""

_NOT_THERE = ("NoSuchKey", "404", "NotFound")
_FULL = ("QuotaExceeded", "XMinioStorageFull", "InsufficientCapacity", "EntityTooLarge")
_RIGHTS = (
    *("AccessDenied", "403", "Forbidden", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"),
    *("InvalidToken", "TokenRefreshRequired", "AllAccessDisabled", "AccountProblem", "XAdminUserNotFound"),
)
_CLOCK = ("RequestTimeTooSkewed", "RequestExpired", "RequestInTheFuture")
_LATER = (
    *("SlowDown", "RequestTimeout", "OperationAborted", "ConditionalRequestConflict", "BadDigest", "NoSuchUpload"),
    *("Throttling", "ThrottlingException", "RequestThrottled", "XAmzContentSHA256Mismatch"),
    "XAmzContentChecksumMismatch",
)
_CREDENTIALS = (
    *("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "TokenRetrievalError"),
    *("SSOTokenLoadError", "UnauthorizedSSOTokenError", "ProfileNotFound"),
)
_SETTINGS = ("NoRegionError", "InvalidEndpointConfigurationError", "ParamValidationError", "EndpointProviderError")
_SERVER_ERRORS = 500
_INSUFFICIENT_STORAGE = 507
_NOT_IMPLEMENTED = 501


def status_of(error: Any) -> int:
    """The HTTP status of a ``ClientError``; 0 without one."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


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
    if code in _NOT_THERE and doing != "put":
        return NotFound(
            f"There is no blob {name} in {location}.",
            code="blob-not-found",
            action="Check that this is the right location.",
            **where,
        )
    message = str(response.get("Error", {}).get("Message") or code or error).rstrip(".")
    message_text = f"{failed}: {message} ({code or status}).{asked}"
    if code in _FULL or status == _INSUFFICIENT_STORAGE:
        return Capacity(
            message_text,
            code="object-store-full",
            action="Free space there, or raise the quota, then run this again.",
            **where,
        )
    if code in _CLOCK:
        return Invalid(
            message_text,
            code="object-store-clock-skewed",
            action="Set the clock of this machine, or that of the object store: a signature is valid for 15 minutes.",
            **where,
        )
    if code in _RIGHTS or status in (401, 403):
        who = " (aws sts get-caller-identity)" if ".amazonaws." in endpoint else ""
        rights = "read" if doing in ("read", "listed") else "read, write and delete"
        return Invalid(
            message_text,
            code="object-store-access-denied",
            action=f"Check that this machine's credentials{who} are not expired, and that they may list the bucket "
            f"and {rights} below the prefix.",
            **where,
        )
    if code in _LATER or (status >= _SERVER_ERRORS and status != _NOT_IMPLEMENTED) or status in (0, 408, 429, CONFLICT):
        return Retryable(
            message_text,
            code="object-store-unavailable",
            action="Check the health of the object store, then run this again.",
            **where,
        )
    return Invalid(
        message_text,
        code="object-store-refused",
        action="Check the location, its region and endpoint, and what the server supports.",
        **where,
    )


def not_s3(location: S3Location, doing: str, name: str, why: str, client: Any) -> Invalid:
    """The error to raise if the server cannot be S3: a proxy, another web server, an endpoint with a wrong path."""
    endpoint = client.meta.endpoint_url
    return Invalid(
        f"The blob {name} in {location} could not be {doing}: the server at {endpoint} does not speak S3: {why}.",
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
