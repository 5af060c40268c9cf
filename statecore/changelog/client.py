"""Connections to brokers: kafka-python's connections and event loop, with deadlines and this project's errors.

The event loop runs on the calling thread, only during a call. kafka-python is imported at the first call (0.35 s); API
versions are asked for once a connection.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Self, TypeVar

from statecore.errors import Invalid, Retryable
from statecore.spec.bootstrap_servers import parse_bootstrap_servers

T = TypeVar("T")

LOG = logging.getLogger(__name__)

_RESPONSE_BYTES = 256 << 20  # kafka-python's default of 1 MB is too small for the metadata of a large cluster
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_SILENT_SECONDS = 2.0  # an unanswered request is reported after that time
_BY_TOKEN = ("OAUTHBEARER", "AWS_MSK_IAM")
_BY_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def reason(error: BaseException) -> str:
    """Text of a kafka-python error, without the class names in front of it."""
    text = str(error.args[0]) if error.args else ""
    return re.sub(r"^(?:\w+Error: )+", "", text).rstrip(".") or type(error).__name__


def connection_settings(kafka: Mapping[str, Any], bootstrap_servers: str) -> Mapping[str, Any]:
    """kafka-python's settings for those of a spec: a provider of tokens in place of the names that describe one."""
    if kafka.get("sasl_mechanism") not in _BY_TOKEN or not str(kafka.get("security_protocol")).startswith("SASL_"):
        return kafka
    from statecore.changelog.token_providers import with_token_provider

    return with_token_provider(kafka, bootstrap_servers)


class BrokerClient:
    """Sends requests to brokers; a context manager that connects on first use."""

    def __init__(self, bootstrap_servers: str, kafka: Mapping[str, Any], *, timeout: float) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.timeout = timeout
        self._kafka = dict(kafka)
        self._connection_settings: Mapping[str, Any] | None = None
        self._has_renewed_token = False
        self._net: Any = None
        self._manager: Any = None
        self._is_waiting = False
        # The event loop runs in one thread at a time.
        self._lock = threading.RLock()

    @property
    def settings(self) -> Mapping[str, Any]:
        """Further kafka-python settings, as given."""
        return self._kafka

    @property
    def addresses(self) -> list[str]:
        """The bootstrap servers, each as ``host:port``."""
        servers = parse_bootstrap_servers(self.bootstrap_servers)
        if servers is None:
            raise Invalid(
                f"bootstrap_servers is {self.bootstrap_servers!r}, expected host:port, or several separated by commas.",
                code="kafka-settings-invalid",
                action="Correct bootstrap_servers.",
                bootstrap_servers=self.bootstrap_servers,
            )
        return list(servers)

    @property
    def connection_settings(self) -> Mapping[str, Any]:
        """Further kafka-python settings, with a token provider for OAUTHBEARER; every connection shares it."""
        if self._connection_settings is None:
            self._connection_settings = connection_settings(self._kafka, self.bootstrap_servers)
        return self._connection_settings

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. A closed client can be used again and reconnects."""
        with self._lock:
            manager, net = self._manager, self._net
            self._manager = self._net = None
            if manager is not None:
                manager.close()
                net.close()

    def deadline(self) -> float:
        """``time.monotonic()`` at which a call that starts now gives up; the start of the client does not count."""
        with self._lock:
            self._start_once()
        return time.monotonic() + self.timeout

    def run(self, call: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run a coroutine on kafka-python's event loop, on this thread."""
        with self._lock:
            self._start_once()
            result: T = self._net.run(call, *args)
            return result

    @property
    def manager(self) -> Any:
        """kafka-python's connection manager; use it only in code that `run` runs."""
        return self._manager

    async def sleep(self, seconds: float) -> None:
        """Pause a coroutine that `run` runs."""
        await self._net.sleep(seconds)

    def _start_once(self) -> None:
        if self._manager is None:
            self._start()

    def _start(self) -> None:
        from kafka.net.selector import NetworkSelector

        from statecore.changelog.sockets import DIRECT, ConnectionManager

        self._check_security()
        given = self.connection_settings
        unknown = sorted(set(given) - set(ConnectionManager.DEFAULT_CONFIG))
        if unknown:
            raise Invalid(
                f"Unknown Kafka client settings: {', '.join(unknown)}.",
                code="kafka-settings-invalid",
                action="Use kafka-python's names, for example security_protocol, ssl_cafile, sasl_mechanism.",
                settings=unknown,
            )
        settings = {
            "client_id": "statecore",
            "receive_message_max_bytes": _RESPONSE_BYTES,
            "reconnect_backoff_max_ms": 1000,
            "proxy_url": DIRECT,
            "ssl_password": "",  # without one OpenSSL asks for it on the terminal
            **given,
            "bootstrap_servers": self.addresses,
        }
        try:
            net = NetworkSelector(client_id=settings["client_id"], slow_task_threshold_secs=0)
            try:
                self._manager = ConnectionManager(net, **settings)
            except BaseException:
                net.close()
                raise
            self._net = net
        except (ValueError, TypeError) as error:
            raise Invalid(
                f"The Kafka client cannot be configured for {self.bootstrap_servers}: {error}.",
                code="kafka-settings-invalid",
                action="Correct bootstrap_servers (host:port, several with commas) and the kafka settings.",
                bootstrap_servers=self.bootstrap_servers,
            ) from error

    def _check_security(self) -> None:
        """Reject settings that kafka-python would fail on later, or would treat as PLAINTEXT."""
        from kafka.net.sasl import get_sasl_mechanism

        given = self._kafka
        protocol, mechanism = given.get("security_protocol", "PLAINTEXT"), given.get("sasl_mechanism")
        problem, wrong = None, ["sasl_mechanism"]
        if protocol not in _PROTOCOLS:
            wrong = ["security_protocol"]
            problem = f"security_protocol is {protocol!r}, expected one of {', '.join(_PROTOCOLS)}"
        elif protocol.startswith("SASL_"):
            try:
                get_sasl_mechanism(mechanism)
            except KeyError:
                problem = f"sasl_mechanism is {mechanism!r}, expected for example PLAIN or SCRAM-SHA-512"
            if mechanism in _BY_PASSWORD:
                missing = [name for name in ("sasl_plain_username", "sasl_plain_password") if not given.get(name)]
                if missing:
                    wrong = missing
                    problem = f"sasl_mechanism {mechanism} needs {' and '.join(missing)}"
        if problem:
            raise Invalid(
                f"The Kafka client cannot be configured for {self.bootstrap_servers}: {problem}.",
                code="kafka-settings-invalid",
                action="Correct the kafka settings.",
                bootstrap_servers=self.bootstrap_servers,
                settings=wrong,
            )

    async def ask(self, nodes: Callable[[], Sequence[Any]], request: Callable[[], Any], deadline: float) -> Any:
        """Send a request to the first broker that answers, and retry until the deadline."""
        tried: dict[str, str] = {}
        allowed = deadline - time.monotonic()

        def warn() -> None:
            if self._is_waiting:  # reported already, as by a standby that asks again in each round
                return
            self._is_waiting = True
            LOG.warning("No broker has answered yet, waiting up to %.0f s: %s", allowed, self._failures(tried))

        timer = self._net.call_later(_SILENT_SECONDS, warn)
        try:
            answer = await self._ask(nodes, request, deadline, tried, allowed)
            self._is_waiting = False
            return answer
        finally:
            self._net.cancel(timer)

    def _failures(self, tried: Mapping[str, str]) -> str:
        return "; ".join(f"{place} ({reason})" for place, reason in tried.items()) or self.bootstrap_servers

    async def _ask(
        self,
        nodes: Callable[[], Sequence[Any]],
        request: Callable[[], Any],
        deadline: float,
        tried: dict[str, str],
        allowed: float,
    ) -> Any:
        import kafka.errors as errors

        from statecore.changelog.sockets import NameUnresolved

        pause = 0.05
        unresolved: dict[str, Any] = {}
        while True:
            candidates = nodes()
            for node in candidates:
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    break
                if len(candidates) > 1:  # a broker that hangs must leave time for the others
                    remaining = min(remaining, max(1.0, remaining / 3))
                try:
                    connection = self.manager.get_connection(node, refresh_metadata_on_err=False)
                    await self.manager.wait_for(connection.init_future, remaining * 1000)
                    sent = connection.send_request(request(), request_timeout_ms=remaining * 1000)
                    answer = await self.manager.wait_for(sent, remaining * 1000)
                    self._has_renewed_token = False
                    return answer
                except errors.NodeNotReadyError:
                    tried.setdefault(self.where(node), "not connected yet")
                except errors.KafkaError as error:
                    self.refuse_if_final(error, node)
                    if isinstance(error, NameUnresolved):
                        unresolved[self.where(node)] = node
                    if not isinstance(error, errors.KafkaTimeoutError):
                        tried[self.where(node)] = reason(error)
                    else:  # of the deadline, mostly: what was said before tells more
                        tried.setdefault(self.where(node), "no answer in time")
                except (OSError, ValueError, RuntimeError) as error:  # certificate files, a missing GSSAPI library
                    raise self._not_set_up(node, error) from error
            if time.monotonic() + pause >= deadline:
                if unresolved and unresolved.keys() == tried.keys():
                    raise self._unresolved(next(iter(unresolved.values())))
                raise Retryable(
                    f"No broker answered within {allowed:.{0 if allowed >= 1 else 1}f} s: {self._failures(tried)}.",
                    code="broker-unreachable",
                    action="Check that the broker runs, that host and port are right, that this host can reach it, "
                    "and that security_protocol matches the protocol of this port.",
                    bootstrap_servers=self.bootstrap_servers,
                    seconds=round(allowed, 1),
                )
            await self.sleep(pause)
            pause = min(2 * pause, 1.0)

    def _not_set_up(self, node: Any, error: Exception) -> Invalid:
        """The error for a connection that this machine cannot begin."""
        from statecore.changelog.tls_files import tls_file_problem

        problem = tls_file_problem(self._kafka) if "SSL" in str(self._kafka.get("security_protocol")) else None
        if problem is not None:
            what, action = f"{problem.setting}: {problem.what}", f"Correct {problem.setting} under kafka."
        elif "GSSAPI" in str(error):
            what, action = "Kerberos needs the Python package gssapi", "Install it on each machine: pip install gssapi."
        else:
            what, action = str(error), "Correct the kafka settings (certificates, TLS)."
        return Invalid(
            f"The connection to {self.where(node)} cannot be set up: {what.rstrip('.')}.",
            code="kafka-settings-invalid",
            action=action,
            broker=self.where(node),
            **({} if problem is None else {"settings": [problem.setting]}),
        )

    def _unresolved(self, node: Any) -> Retryable:
        """The error for a name that has no address here: one that was given, or one that a broker advertises."""
        host = self.where(node).rpartition(":")[0]
        named = {"host": host, "broker": self.where(node), "bootstrap_servers": self.bootstrap_servers}
        if self.manager.cluster.is_bootstrap(node):
            return Retryable(
                f"The name {host} of the bootstrap server {self.where(node)} does not resolve on this machine.",
                code="broker-name-unresolved",
                action="Correct bootstrap_servers, or add the name to DNS or to /etc/hosts.",
                **named,
            )
        return Retryable(
            f"Broker {node} advertises {self.where(node)}, and the name {host} does not resolve on this machine. "
            f"{self.bootstrap_servers} answered.",
            code="broker-name-unresolved",
            action=f"Set advertised.listeners of broker {node} to a name that this machine can resolve (in a container "
            "or behind a tunnel: a listener of its own), or add the name to DNS or to /etc/hosts.",
            **named,
        )

    def where(self, node: Any) -> str:
        """``host:port`` of a broker id."""
        broker = self.manager.cluster.broker_metadata(node)
        return f"{broker.host}:{broker.port}" if broker is not None else f"broker {node}"

    def refuse_if_final(self, error: Exception, node: Any) -> None:
        """Raise `Invalid` for an error that a retry cannot fix: credentials, permissions, TLS, versions."""
        import kafka.errors as errors

        from statecore.changelog.sockets import TlsRefused

        final = (
            errors.SaslAuthenticationFailedError,
            errors.UnsupportedSaslMechanismError,
            errors.IllegalSaslStateError,
            errors.AuthorizationError,
            errors.UnsupportedVersionError,
            errors.KafkaConfigurationError,
        )
        if isinstance(error, errors.SaslAuthenticationFailedError) and self._renew_token(error, node):
            return
        if isinstance(error, final):
            raise Invalid(
                f"Broker {self.where(node)} rejected this client: {reason(error)}.",
                code="broker-access-denied",
                action="Correct the credentials and security settings under kafka, or the permissions of the user.",
                broker=self.where(node),
            ) from error
        if isinstance(error, TlsRefused):
            raise Invalid(
                f"The TLS connection to broker {self.where(node)} failed: {error}.",
                code="tls-failed",
                action="Correct security_protocol and the ssl_ settings under kafka, or the broker's certificate.",
                broker=self.where(node),
            ) from error

    def _renew_token(self, error: Exception, node: Any) -> bool:
        """Whether a broker that rejected a token is to be asked once more, with another."""
        provider = self.connection_settings.get("sasl_oauth_token_provider")
        if provider is None:
            return False
        if self._has_renewed_token:
            raise Retryable(
                f"Broker {self.where(node)} rejected two tokens in a row: {reason(error)}.",
                code="broker-token-rejected",
                action="Check that the tokens are for this cluster: audience, scope, and the clocks.",
                broker=self.where(node),
            ) from error
        self._has_renewed_token = True
        if hasattr(provider, "forget"):
            provider.forget()
        self.manager.forget_refusal(node)
        return True

    def metadata_brokers(self) -> list[Any]:
        """Brokers to ask for metadata, in this order: connected ones, the bootstrap servers, all others."""
        connected = [connection.node_id for connection in self.manager.least_used_connections()]
        known = [broker.node_id for broker in self.manager.cluster.brokers()]
        seeds = [broker.node_id for broker in self.manager.cluster.bootstrap_brokers()]
        return list(dict.fromkeys([*connected, *seeds, *known]))
