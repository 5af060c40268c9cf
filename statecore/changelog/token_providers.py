"""SASL OAUTHBEARER: tokens from a token endpoint, from an entry point of another package, or signed for AWS MSK.

A spec holds texts; kafka-python wants an object that returns tokens. `with_token_provider` makes it::

    sasl_mechanism: OAUTHBEARER with sasl_oauthbearer_token_endpoint_url    client credentials (RFC 6749, 4.4)
    sasl_mechanism: OAUTHBEARER with sasl_oauth_token_provider: NAME        entry point of statecore.token_providers
    sasl_mechanism: AWS_MSK_IAM                                             signed with the AWS credentials found here

A token is used for four fifths of its life. After a refusal by a broker it is requested again. Imports kafka-python, so
it is imported late.
"""

from __future__ import annotations

import base64
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any
from urllib.parse import quote_plus

from kafka.net.sasl.oauth import AbstractTokenProvider

from statecore.errors import TOKEN_REFUSED, Invalid, Retryable
from statecore.extras import require

ENTRY_POINTS = "statecore.token_providers"
"""Group of entry points: callables without arguments that return kafka-python's ``AbstractTokenProvider``."""

_PREFIX = "sasl_oauthbearer_"
_ENDPOINT = f"{_PREFIX}token_endpoint_url"
_ID, _SECRET = f"{_PREFIX}client_credentials_client_id", f"{_PREFIX}client_credentials_client_secret"
_SCOPE = f"{_PREFIX}scope"
_URLENCODED = f"{_PREFIX}header_urlencode"
_EXTENSIONS = f"{_PREFIX}extensions"
_PROVIDER = "sasl_oauth_token_provider"
_LATER = (408, 425, 429)  # HTTP statuses of an endpoint that is there and asks for patience
_LATER_CODES = ("server_error", "slow_down", "temporarily_unavailable", "too_many_requests")
_WRONG_URL = (404, 405, 410)
_USED_SHARE = 0.8
_SECONDS = 300.0  # of a token whose life its endpoint does not state
_TIMEOUT = 20.0
_EXTENSION = re.compile(r"([A-Za-z]+)=([!-~ \t\r\n]+)")  # RFC 7628, 3.1: another byte would end the message
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
    """Keeps a token while it is valid; ``request`` returns one and when it expires (``time.time()``).

    Args:
        extensions: SASL extensions that are sent with each token.
    """

    def __init__(self, request: Callable[[], tuple[str, float]], extensions: Mapping[str, str] = {}) -> None:
        super().__init__()
        self._request, self._extensions = request, dict(extensions)
        self._token, self._until = "", 0.0
        self._one_at_a_time = threading.Lock()

    def token(self) -> str:
        with self._one_at_a_time:
            now = time.time()
            if now >= self._until:
                self._token, expires = self._request()
                self._until = now + _USED_SHARE * (expires - now)
            return self._token

    def extensions(self) -> dict[str, str]:
        return dict(self._extensions)

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
    extensions = _extensions(str(kafka.get(_EXTENSIONS) or ""))
    require("oauth")
    return CachedTokens(lambda: _client_credentials(kafka), extensions)


def _extensions(text: str) -> dict[str, str]:
    """SASL extensions, written as librdkafka's setting of that name: ``logicalCluster=lkc-1,identityPoolId=pool-1``."""
    found: dict[str, str] = {}
    for number, part in enumerate(text.split(",") if text else (), 1):
        extension = _EXTENSION.fullmatch(part.strip())
        if extension is None or extension[1] == "auth" or extension[1] in found:
            raise _invalid(
                f"Entry {number} of {_EXTENSIONS} is no SASL extension.",  # its value may be a secret
                "Write name=value, several with commas; a name has letters only, is not auth, and occurs once.",
                _EXTENSIONS,
            )
        found[extension[1]] = extension[2]
    return found


def _client_credentials(kafka: Mapping[str, Any]) -> tuple[str, float]:
    """A token by the client's own credentials, and when it expires."""
    import requests

    endpoint, scope = kafka[_ENDPOINT], kafka.get(_SCOPE)
    form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
    client = [str(kafka[_ID]), str(kafka[_SECRET])]
    if str(kafka.get(_URLENCODED)).lower() == "true":  # as RFC 6749, 2.3.1 has it, and Kafka's client only on request
        client = [quote_plus(text) for text in client]
    try:
        answer = requests.post(
            endpoint,
            data=form,
            headers={"Accept": "application/json"},
            auth=(client[0].encode(), client[1].encode()),
            timeout=_TIMEOUT,
            allow_redirects=False,  # one to http would show the answer to everybody
        )
    except requests.exceptions.RequestException as error:
        raise _unreachable(endpoint, f"did not answer: {_without(kafka, str(error) or type(error).__name__)}") from None
    try:
        document = answer.json()
    except ValueError:
        document = None
    fields = document if isinstance(document, dict) else {}
    said = f"{answer.status_code} {answer.reason}".strip()
    if code := fields.get("error"):
        said = _without(kafka, " ".join(filter(None, [said, str(code), str(fields.get("error_description") or "")])))
    if answer.ok and not fields.get("error") and answer.status_code < 300:
        token = fields.get("access_token")
        if not isinstance(token, str) or not token:
            raise _unreachable(endpoint, f"has answered without a token ({said})")
        return token, time.time() + _life(fields.get("expires_in"))
    if answer.status_code in _LATER or answer.status_code >= 500 or code in _LATER_CODES:
        raise _unreachable(endpoint, f"cannot answer now: {said}")
    if answer.status_code in _WRONG_URL or 300 <= answer.status_code < 400:
        raise _invalid(
            f"The token endpoint {endpoint} answers {said}: it is not the address of a token endpoint.",
            f"Correct {_ENDPOINT} under kafka.",
            _ENDPOINT,
        )
    raise Invalid(
        f"The token endpoint {endpoint} refused the client {kafka[_ID]}: {said}.",
        code=TOKEN_REFUSED,
        action=f"Correct {_ID}, {_SECRET} and {_SCOPE} under kafka, or what they are taken from (a variable of the "
        "environment, the connection of Airflow), or the client at the token endpoint.",
        endpoint=endpoint,
    )


def _life(seconds: Any) -> float:
    """How long a token lives, in seconds, as its endpoint says."""
    try:
        return float(seconds)
    except (TypeError, ValueError):
        return _SECONDS


def _unreachable(endpoint: str, what: str) -> Retryable:
    return Retryable(
        f"The token endpoint {endpoint} {what}.",
        code="token-endpoint-unreachable",
        action="Check the endpoint, its address and any proxy, and that this machine trusts its certificate "
        "(REQUESTS_CA_BUNDLE).",
        endpoint=endpoint,
    )


def _without(kafka: Mapping[str, Any], text: str) -> str:
    """A text without the secret, nor the header that has it."""
    secret = str(kafka[_SECRET])
    basic = base64.b64encode(f"{kafka[_ID]}:{secret}".encode()).decode()
    return text.replace(basic, "...").replace(secret, "...").rstrip(". :")


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
