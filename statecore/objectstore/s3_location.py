"""``S3Location``: a place in S3, and the boto3 client for it.

A location has no secrets, so it may be sent with tasks and appear in reports::

    s3://bucket/prefix                                   endpoint, region and credentials as boto3 finds them
    s3://bucket/prefix?endpoint=http://host:port&region=eu-central-1&encryption=aws:kms&kms-key=KEY-ID
    s3://bucket/prefix?addressing=virtual&request-payer=requester&profile=replica

**Credentials** are found on each machine by boto3's own chain: environment (``AWS_ACCESS_KEY_ID``, ...), shared
credentials file and profiles, web identity, role of the container or instance. They are never part of a location, of a
task, or of Spark's configuration. The key for encryption with customer keys (SSE-C) is read from
``STATECORE_S3_CUSTOMER_KEY``, 32 bytes in base64.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from statecore.errors import Invalid, Retryable
from statecore.extras import require
from statecore.objectstore.base import DEFAULT_RETRIES, checked_name
from statecore.objectstore.s3_credentials import RENEW, CredentialRenewal

CUSTOMER_KEY = "STATECORE_S3_CUSTOMER_KEY"
"""Environment variable with the SSE-C key."""

CONNECTIONS = 32
"""Maximum connections of a client."""

_CHOICES = {"addressing": ("path", "virtual"), "request-payer": ("requester",)}
_CHECKSUM_SETTINGS = ("request_checksum_calculation", "response_checksum_validation")

_AWS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_CUSTOMER_KEY_BYTES = 32


class Encryption(StrEnum):
    """Encryption of blobs at rest."""

    DEFAULT = ""
    """The bucket's default."""

    SSE_S3 = "AES256"
    """By the server, with its own keys (SSE-S3)."""

    SSE_KMS = "aws:kms"
    """By the server, with a key of the key management service (SSE-KMS)."""

    SSE_C = "customer"
    """By the server, with a key that each request sends and that it does not keep (SSE-C)."""


@dataclass(frozen=True)
class S3Location:
    """A place in a bucket.

    Attributes:
        prefix: common prefix of the names of all blobs, without slashes at its ends; may be empty.
        endpoint: URL of the server; ``None`` for boto3's default (``AWS_ENDPOINT_URL_S3``, AWS).
        region: of the bucket; ``None`` for boto3's default.
        kms_key: key id for :attr:`Encryption.SSE_KMS`; ``None`` for the account's own.
        addressing: ``path`` or ``virtual``: whether requests have the bucket in the path or in the host name; ``None``
            for boto3's default.
        request_payer: ``requester`` if the requester pays for requests; else ``None``.
        profile: the profile of boto3's files that has the credentials; ``None`` for boto3's default.
    """

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None
    encryption: Encryption = Encryption.DEFAULT
    kms_key: str | None = None
    addressing: str | None = None
    request_payer: str | None = None
    profile: str | None = None

    def __post_init__(self) -> None:
        if not _BUCKET.fullmatch(self.bucket):
            raise Invalid(
                f"{self.bucket!a} is not a valid bucket name.",
                code="bucket-invalid",
                action="Give 3 to 63 lower-case letters, digits, dots and dashes: s3://bucket/prefix.",
                bucket=self.bucket,
            )
        if self.prefix:
            self._check_prefix()
        if self.kms_key is not None and self.encryption is not Encryption.SSE_KMS:
            raise Invalid(
                "A KMS key was given with another encryption.",
                code="options-conflict",
                action="Give encryption=aws:kms with a KMS key.",
            )

    def _check_prefix(self) -> None:
        try:
            checked_name(self.prefix)
        except Invalid as error:
            raise error.restated(
                f"{self.prefix!a} cannot be the prefix of the names of blobs in the bucket {self.bucket}.",
                action="Give a prefix of letters, digits and ._=@+- in parts of up to 249, with / between them. It is "
                "taken as it is: % begins no escape, and + is no space.",
            ) from error

    def __str__(self) -> str:
        return f"s3://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")

    @property
    def url(self) -> str:
        """The location as a URL for :meth:`of_url`."""
        given = {
            "endpoint": self.endpoint,
            "region": self.region,
            "encryption": self.encryption.value,
            "kms-key": self.kms_key,
            "addressing": self.addressing,
            "request-payer": self.request_payer,
            "profile": self.profile,
        }
        query = urlencode({name: value for name, value in given.items() if value}, safe=":/")
        return f"{self}?{query}" if query else str(self)

    def below(self, *parts: str) -> S3Location:
        """A place within this one."""
        return replace(self, prefix="/".join(filter(None, (self.prefix, *parts))))

    def key(self, name: str) -> str:
        return f"{self.prefix}/{name}" if self.prefix else name

    @staticmethod
    def of_url(url: str) -> S3Location:
        parts = urlsplit(url)
        action = (
            "Give s3://bucket/prefix, with endpoint, region, encryption, kms-key, addressing, request-payer, profile "
            "or encryption-key after a question mark."
        )
        if parts.scheme != "s3" or not parts.netloc or parts.fragment:
            raise Invalid(
                f"{_without_secrets(url)!a} is not an S3 URL.",
                code="repository-url-invalid",
                action=action,
                url=_without_secrets(url),
            )
        if "@" in parts.netloc:
            raise Invalid(
                f"{_without_secrets(url)!a} contains credentials, which do not belong in a URL.",
                code="credentials-in-url",
                action="Give them to boto3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or a role.",
            )
        given = dict(parse_qsl(parts.query, keep_blank_values=True))
        names = ("endpoint", "region", "encryption", "kms-key", "addressing", "request-payer", "profile")
        options = {name: given.pop(name, None) or None for name in names}
        if given:
            raise Invalid(
                f"Unknown settings in an S3 URL: {', '.join(sorted(given))}.",
                code="repository-url-invalid",
                action=action,
                settings=sorted(given),
            )
        try:
            encryption = Encryption(options["encryption"] or "")
        except ValueError:
            raise Invalid(
                f"{options['encryption']!a} is not an encryption of S3.",
                code="encryption-invalid",
                action=f"Give one of {', '.join(one.value for one in Encryption if one)}.",
            ) from None
        for name, choices in _CHOICES.items():
            if options[name] not in (None, *choices):
                raise Invalid(
                    f"{name}={options[name]!a} is no setting of an S3 URL.",
                    code="repository-url-invalid",
                    action=f"Give {name}={' or '.join(choices)}.",
                    settings=[name],
                )
        return S3Location(
            parts.netloc,
            parts.path.strip("/"),
            options["endpoint"],
            options["region"],
            encryption,
            options["kms-key"],
            options["addressing"],
            options["request-payer"],
            options["profile"],
        )


def _without_secrets(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//...@", url)


@dataclass(frozen=True, repr=False)
class EncryptionArguments:
    """Encryption arguments of requests.

    Attributes:
        create: for requests that create an object.
        access: for requests that read an object, or send a part.
    """

    create: Mapping[str, Any]
    access: Mapping[str, Any]


def encryption_arguments(location: S3Location) -> EncryptionArguments:
    if location.encryption is Encryption.SSE_S3:
        return EncryptionArguments({"ServerSideEncryption": "AES256"}, {})
    if location.encryption is Encryption.SSE_KMS:
        key = {} if location.kms_key is None else {"SSEKMSKeyId": location.kms_key}
        return EncryptionArguments({"ServerSideEncryption": "aws:kms", "BucketKeyEnabled": True, **key}, {})
    if location.encryption is Encryption.SSE_C:
        arguments = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": _customer_key()}
        return EncryptionArguments(arguments, arguments)
    return EncryptionArguments({}, {})


def _customer_key() -> bytes:
    try:
        key = base64.b64decode(os.environ.get(CUSTOMER_KEY, ""), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != _CUSTOMER_KEY_BYTES:
        raise Invalid(
            f"{CUSTOMER_KEY} is not a key of {_CUSTOMER_KEY_BYTES} bytes in base64.",
            code="customer-key-invalid",
            action=f"Set it on every machine that reads or writes blobs (openssl rand -base64 {_CUSTOMER_KEY_BYTES}).",
        )
    return key


def region_of_other_sdks() -> str | None:
    """The region from ``AWS_REGION``, which boto3 ignores, unless boto3's own variable is set."""
    return None if "AWS_DEFAULT_REGION" in os.environ else os.environ.get("AWS_REGION")


def make_client(
    location: S3Location, attempts: int = DEFAULT_RETRIES.attempts, timeout: float = DEFAULT_RETRIES.timeout
) -> Any:
    """A boto3 client for a location; it is thread-safe."""
    require("s3")
    import boto3
    import botocore.session
    from botocore.config import Config
    from botocore.exceptions import (
        BotoCoreError,
        CredentialRetrievalError,
        TokenRetrievalError,
        UnauthorizedSSOTokenError,
    )

    try:
        of_botocore = botocore.session.get_session()
        if location.profile:
            of_botocore.set_config_variable("profile", location.profile)
        session = boto3.session.Session(botocore_session=of_botocore)
        _refuse_unchecked(of_botocore)
        client = session.client(
            "s3",
            endpoint_url=location.endpoint,
            region_name=location.region or region_of_other_sdks(),
            config=Config(
                retries={"mode": "standard", "total_max_attempts": attempts},
                connect_timeout=min(10.0, timeout),
                read_timeout=timeout,
                max_pool_connections=CONNECTIONS,
                s3={"addressing_style": location.addressing} if location.addressing else None,
            ),
        )
        client.meta.events.register("needs-retry.s3", RetryLog(attempts))
        CredentialRenewal(session, location.profile).register(client)
        if location.request_payer:
            client.meta.events.register("before-parameter-build.s3", _RequestPayer(location.request_payer))
    except (CredentialRetrievalError, TokenRetrievalError, UnauthorizedSSOTokenError) as error:
        raise Retryable(
            f"No credentials for {location} were found: {str(error).strip().rstrip('.:')}.",
            code="object-store-credentials-expired",
            action=RENEW,
        ) from error
    except (BotoCoreError, ValueError) as error:
        raise Invalid(
            f"No client for {location} could be created: {error}",
            code="object-store-settings-invalid",
            action="Check the endpoint, the region and the profile (AWS_ENDPOINT_URL, AWS_REGION, AWS_PROFILE).",
        ) from error
    return client


def server_of(client: Any) -> str:
    """What the requests of a client go to; one name for AWS, whose buckets have one name in all its regions."""
    host = urlsplit(client.meta.endpoint_url).netloc.lower()
    return "aws" if host.endswith(_AWS) else host


def _refuse_unchecked(session: Any) -> None:
    """Refuse settings of the environment or the profile that turn checksums off: pointers have no other check."""
    for name in _CHECKSUM_SETTINGS:
        if str(session.get_config_variable(name)).lower() == "when_required":
            raise Invalid(
                f"AWS_{name.upper()}, or {name} of the profile, is when_required. A repository needs checksums.",
                code="object-store-settings-invalid",
                action="Unset it for statecore. A server that refuses checksums cannot hold a repository.",
                setting=name,
            )


@dataclass(frozen=True)
class _RequestPayer:
    """Adds the payer to each request that can have one."""

    payer: str

    def __call__(self, *, params: Any, model: Any, **_: Any) -> None:
        if "RequestPayer" in model.input_shape.members:
            params["RequestPayer"] = self.payer


_log = logging.getLogger(__name__)

_SECONDS_BETWEEN = 10.0


class RetryLog:
    """Logs a warning before a retry, at most every ten seconds."""

    def __init__(self, attempts: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._attempts, self._clock = attempts, clock
        self._next = clock()
        self._one_at_a_time = threading.Lock()

    def __call__(
        self, *, response: Any, endpoint: Any, operation: Any, attempts: int, caught_exception: Any, **_: Any
    ) -> None:
        """Handle botocore's event ``needs-retry``, sent after each try."""
        status = 0 if response is None else response[0].status_code
        if attempts >= self._attempts or (caught_exception is None and status < 500 and status != 429):
            return
        with self._one_at_a_time:
            if self._clock() < self._next:
                return
            self._next = self._clock() + _SECONDS_BETWEEN
        why = str(caught_exception or f"status {status}").rstrip(".")
        _log.warning(
            "%s: retrying %s (%d of %d): %s.", endpoint.host, operation.name, attempts + 1, self._attempts, why
        )
