"""Renews the credentials of a client when the object store refuses them.

botocore reads a credentials file or a role's key once for each session, and a service lives longer than a key. After a
refusal this module asks a new session. If that has other credentials, the request is signed again and sent once more,
and later requests use them, too. HEAD has no body, so its refusal has no error code; its status has to do.
"""

from __future__ import annotations

import threading
from typing import Any

EXPIRED = ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired")
"""Error codes for temporary credentials whose time is over."""

UNKNOWN_KEY = ("InvalidAccessKeyId", "InvalidToken", "XAdminUserNotFound")
"""Error codes for a key that was deleted, or never existed."""

RENEW = "Renew them (credentials file, AWS_SESSION_TOKEN, SSO login, role), then run this again."

_RENEWED = "statecore_renewed"
_WITHOUT_BODY = ("400", "401", "403")


class CredentialRenewal:
    """The event handlers of one client; ``session`` is the boto3 session that made it, ``profile`` the URL's."""

    def __init__(self, session: Any, profile: str | None = None) -> None:
        self._session, self._profile = session, profile
        self._renewed: Any = None
        self._one_at_a_time = threading.Lock()

    def register(self, client: Any) -> None:
        client.meta.events.register("before-call.s3", self._use_renewed)
        client.meta.events.register("needs-retry.s3", self._renew)

    def _use_renewed(self, *, params: Any, **_: Any) -> None:
        if self._renewed is not None:
            _signing(params)["request_credentials"] = self._renewed

    def _renew(self, *, request_dict: Any, response: Any, **_: Any) -> int | None:
        """Handle botocore's event ``needs-retry``: 0 to send the request again now."""
        if response is None or request_dict["context"].get(_RENEWED):
            return None
        if response[1].get("Error", {}).get("Code") not in (*EXPIRED, *UNKNOWN_KEY, *_WITHOUT_BODY):
            return None
        request_dict["context"][_RENEWED] = True
        signing = _signing(request_dict)
        with self._one_at_a_time:
            refused = signing.get("request_credentials") or self._session.get_credentials()
            if (self._renewed or refused) is refused:  # no other request has renewed them meanwhile
                found = _of_new_session(self._profile)
                if found is None or found.get_frozen_credentials() == refused.get_frozen_credentials():
                    return None
                self._renewed = found
            signing["request_credentials"] = self._renewed
        return 0


def _signing(request_dict: Any) -> dict[str, Any]:
    signing: dict[str, Any] = request_dict["context"].setdefault("signing", {})
    return signing


def _of_new_session(profile: str | None) -> Any:
    import boto3
    from botocore.exceptions import BotoCoreError

    try:
        return boto3.session.Session(profile_name=profile).get_credentials()
    except BotoCoreError:  # the refusal says more than this
        return None
