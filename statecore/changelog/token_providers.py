"""SASL OAUTHBEARER: tokens from a token endpoint, from an entry point of another package, or signed for AWS MSK.

A spec holds texts; kafka-python wants an object that returns tokens. `with_token_provider` makes it::

    sasl_mechanism: OAUTHBEARER with sasl_oauthbearer_token_endpoint_url    client credentials (RFC 6749, 4.4)
    sasl_mechanism: OAUTHBEARER with sasl_oauth_token_provider: NAME        entry point of statecore.token_providers
    sasl_mechanism: AWS_MSK_IAM                                             signed with the AWS credentials found here

A token is used for four fifths of its life. After a refusal by a broker it is requested again. Imports kafka-python, so
it is imported late.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any

from kafka.net.sasl.oauth import AbstractTokenProvider

from statecore.errors import Invalid, Retryable
from statecore.extras import require

ENTRY_POINTS = "statecore.token_providers"
"""Group of entry points: callables without arguments that return kafka-python's ``AbstractTokenProvider``."""

_PREFIX = "sasl_oauthbearer_"
_ENDPOINT = f"{_PREFIX}token_endpoint_url"
_ID, _SECRET = f"{_PREFIX}client_credentials_client_id", f"{_PREFIX}client_credentials_client_secret"
_SCOPE = f"{_PREFIX}scope"
_PROVIDER = "sasl_oauth_token_provider"
_USED_SHARE = 0.8
_SECONDS = 300.0  # of a token whose life its endpoint does not state
_TIMEOUT = 20.0
_MSK = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")


def with_token_provider(kafka: Mapping[str, Any], bootstrap_servers: str) -> dict[str, Any]:
    """kafka-python's settings for those of a spec whose mechanism sends tokens."""
    settings = {name: value for name, value in kafka.items() if not name.startswith(_PREFIX)}
    provider = kafka.get(_PROVIDER)
    if kafka["sasl_mechanism"] == "AWS_MSK_IAM":
        settings["sasl_mechanism"] = "OAUTHBEARER"
        settings[_PROVIDER] = CachedTokens(lambda: _msk_token(bootstrap_servers))
    elif provider is None:
        settings[_PROVIDER] = _of_endpoint(kafka)
    elif isinstance(provider, str):
        settings[_PROVIDER] = _named(provider)
    return settings


class CachedTokens(AbstractTokenProvider):
    """Keeps a token while it is valid; ``request`` returns one and when it expires (``time.time()``)."""

    def __init__(self, request: Callable[[], tuple[str, float]]) -> None:
        super().__init__()
        self._request = request
        self._token, self._until = "", 0.0
        self._one_at_a_time = threading.Lock()

    def token(self) -> str:
        with self._one_at_a_time:
            now = time.time()
            if now >= self._until:
                self._token, expires = self._request()
                self._until = now + _USED_SHARE * (expires - now)
            return self._token

    def forget(self) -> None:
        """Request another token at the next connection."""
        self._until = 0.0


class ReloadedProvider(AbstractTokenProvider):
    """The provider of an entry point, which is made again after a refusal: it may keep tokens itself."""

    def __init__(self, make: Callable[[], Any]) -> None:
        super().__init__()
        self._make = make
        self.made = make()

    def token(self) -> Any:
        return self.made.token()

    def extensions(self) -> Any:
        return self.made.extensions()

    def forget(self) -> None:
        """Make the provider again."""
        self.made = self._make()


def _named(name: str) -> Any:
    known = {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
    if name not in known:
        raise _invalid(
            f"There is no token provider {name!r}; installed: {', '.join(sorted(known)) or 'none'}.",
            f"Install the package that has it as an entry point of {ENTRY_POINTS}, on each machine.",
            _PROVIDER,
        )
    provider = ReloadedProvider(known[name].load())
    if not isinstance(provider.made, AbstractTokenProvider):
        raise _invalid(
            f"The token provider {name!r} returns {type(provider.made).__name__}, not an AbstractTokenProvider.",
            "Return an instance of kafka.net.sasl.oauth.AbstractTokenProvider.",
            _PROVIDER,
        )
    return provider


def _of_endpoint(kafka: Mapping[str, Any]) -> Any:
    missing = [name for name in (_ENDPOINT, _ID, _SECRET) if not kafka.get(name)]
    if missing:
        raise _invalid(
            f"sasl_mechanism OAUTHBEARER needs {', '.join(missing)}, or {_PROVIDER}.", "Add them under kafka.", *missing
        )
    if not kafka[_ENDPOINT].startswith("https://"):
        raise _invalid(
            f"{_ENDPOINT} {kafka[_ENDPOINT]} is not https, and the client's secret would be sent in clear text.",
            "Give the https URL of the token endpoint.",
            _ENDPOINT,
        )
    require("oauth")
    return CachedTokens(lambda: _client_credentials(kafka))


def _client_credentials(kafka: Mapping[str, Any]) -> tuple[str, float]:
    """A token by the client's own credentials."""
    from authlib.common.errors import AuthlibBaseError
    from authlib.integrations.requests_client import OAuth2Session
    from requests.exceptions import RequestException

    endpoint = kafka[_ENDPOINT]
    try:
        with OAuth2Session(kafka[_ID], kafka[_SECRET], scope=kafka.get(_SCOPE)) as session:
            answer = session.fetch_token(endpoint, grant_type="client_credentials", timeout=_TIMEOUT)
            return str(answer["access_token"]), float(answer.get("expires_at") or time.time() + _SECONDS)
    except RequestException as error:
        raise Retryable(
            f"The token endpoint {endpoint} did not answer: {_without(kafka, error)}.",
            code="token-endpoint-unreachable",
            action="Check the endpoint, and that this machine trusts its certificate (REQUESTS_CA_BUNDLE).",
            endpoint=endpoint,
        ) from None
    except (AuthlibBaseError, KeyError, TypeError, ValueError) as error:
        raise Invalid(
            f"The token endpoint {endpoint} refused the client {kafka[_ID]}: {_without(kafka, error)}.",
            code="token-refused",
            action=f"Correct {_ID}, {_SECRET} and {_SCOPE} under kafka, or the client at the token endpoint.",
            endpoint=endpoint,
        ) from None


def _without(kafka: Mapping[str, Any], error: Exception) -> str:
    """Text of an error without the secret."""
    return (str(error) or type(error).__name__).replace(str(kafka[_SECRET]), "...").rstrip(".")


def _msk_token(bootstrap_servers: str) -> tuple[str, float]:
    require("msk")
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

    found = _MSK.search(bootstrap_servers)
    region = found[1] if found else os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise _invalid("The AWS region of the brokers is not known.", "Set AWS_REGION.", "sasl_mechanism")
    try:
        token, expires_ms = MSKAuthTokenProvider.generate_auth_token(region)
    except (AttributeError, ValueError) as error:  # what the package raises where there are none
        raise _invalid(
            "This machine has no AWS credentials for sasl_mechanism AWS_MSK_IAM.",
            "Give it AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile (AWS_PROFILE), or a role.",
            "sasl_mechanism",
        ) from error
    except Exception as error:  # of boto3, which is imported by the object store only
        raise Retryable(
            f"A token for AWS MSK could not be signed: {error}.",
            code="token-endpoint-unreachable",
            action="Check the AWS credentials of this machine.",
            endpoint="AWS",
        ) from error
    return token, expires_ms / 1000


def _invalid(what: str, action: str, *settings: str) -> Invalid:
    return Invalid(what, code="kafka-settings-invalid", action=action, settings=list(settings))
