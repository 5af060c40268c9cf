"""Translates an application's ``.properties`` from Kafka's Java names to kafka-python's.

======================================  ==============================================================================
Java (``StreamsConfig``, clients)       here
======================================  ==============================================================================
``application.id``                      the application's id
``bootstrap.servers``                   the cluster
``processing.guarantee``                the guarantee
``enable.transactional.statestores``    whether state stores are transactional (4.4)
``dsl.store.format``                    the format of the DSL's stores
``security.protocol``                   ``security_protocol``
``sasl.mechanism``                      ``sasl_mechanism``: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, GSSAPI, OAUTHBEARER,
                                        AWS_MSK_IAM
``sasl.jaas.config``                    ``sasl_plain_username`` and ``sasl_plain_password``, or the Kerberos service
``ssl.truststore.location``, type PEM   ``ssl_cafile``
``ssl.keystore.location``, type PEM     ``ssl_certfile`` and ``ssl_keyfile``: one file has both
``ssl.key.password``                    ``ssl_password``
``ssl.endpoint.identification.…``       ``ssl_check_hostname``
times and sizes of the connection       the same with underscores
======================================  ==============================================================================

Connection settings that cannot be translated (a JKS truststore, a custom class) are refused, with a
remedy. Names with the prefixes of the restore consumer win, as in Kafka Streams, because it reads the changelogs there.
Secrets are returned separately: no spec contains one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from statecore.errors import Invalid, NotFound
from statecore.spec.bootstrap_servers import parse_bootstrap_servers
from statecore.spec.client_settings import SASL_MECHANISMS
from statecore.spec.model import ProcessingGuarantee
from statecore.system_errors import system_error

PASSWORD_VARIABLE = "KAFKA_PASSWORD"
"""Environment variable named in a spec in place of the configured SASL password."""

KEY_PASSWORD_VARIABLE = "KAFKA_KEY_PASSWORD"
"""The same for the password of the client's key."""

CLIENT_SECRET_VARIABLE = "KAFKA_CLIENT_SECRET"
"""The same for the client's secret at the token endpoint."""

_PREFIXES = ("restore.consumer.", "consumer.", "")
_SAME = (
    "client.dns.lookup",
    "connections.max.idle.ms",
    "metadata.max.age.ms",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "request.timeout.ms",
    "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms",
)
_UNQUOTED = (
    *("application.id", "bootstrap.servers", "processing.guarantee", "enable.transactional.statestores"),
    *("dsl.store.format", "security.protocol", "sasl.mechanism", "ssl.keystore.type", "ssl.truststore.type"),
    "sasl.oauthbearer.token.endpoint.url",
)
"""Settings whose values have no quotes; Java takes a quote as part of the value."""

_OAUTH = "sasl.oauthbearer."
_TRANSLATED_CLASSES = re.compile(
    r"org\.apache\.kafka\.common\.security\.oauthbearer\.(secured\.)?OAuthBearerLoginCallbackHandler|"
    r"org\.apache\.kafka\.common\.security\.oauthbearer\.(ClientCredentials|Default)JwtRetriever|"
    r"software\.amazon\.msk\.auth\.iam\.\w+"
)
"""What these classes do, the settings of a mechanism do here."""

_OWN_CLASSES = (
    "sasl.client.callback.handler.class",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.oauthbearer.jwt.retriever.class",
    "security.providers",
    "ssl.engine.factory.class",
)
_IGNORED = ("ssl.cipher.suites", "ssl.enabled.protocols", "ssl.protocol", "ssl.provider")
_JAAS_OPTION = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")
_PROVIDED = re.compile(r"\$\{(?!env:)[^}:]+:[^}]*\}")
_ENVIRONMENT = re.compile(r"\$\{env:([^}]*)\}")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True)
class JavaConfiguration:
    """The content of the application's configuration.

    Attributes:
        dsl_store_format: ``DEFAULT`` or ``HEADERS``, or ``None`` if not set.
        in_memory: whether the DSL's stores are in memory by default.
        client: client settings by kafka-python's names, secrets as ``${NAME}``.
        secrets: the values of these names; never shown, never written.
        remarks: settings that were left out.
    """

    source: str
    application_id: str | None = None
    bootstrap_servers: str | None = None
    processing_guarantee: ProcessingGuarantee | None = None
    transactional_state_stores: bool = False
    dsl_store_format: str | None = None
    in_memory: bool = False
    client: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    remarks: tuple[str, ...] = ()


def load_java_configuration(path: Path) -> JavaConfiguration:
    return translate(load_properties(path), str(path))


class Properties(dict[str, str]):
    """The pairs of a file; ``places`` has line and column of each character of a value."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[str, list[tuple[int, int]]] = {}


def load_properties(path: Path) -> Properties:
    """Read the pairs of a ``.properties`` file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound(
            f"There is no file {path}.", code="config-not-found", action="Name the application's .properties file."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise system_error(error, f"{path} cannot be read", action="Name a .properties file in UTF-8.") from error
    return parse_properties(text)


def parse_properties(text: str) -> Properties:
    """Parse the format of ``java.util.Properties.load``; the last value of a name wins."""
    pairs = Properties()
    lines = enumerate(text.splitlines(), 1)
    for number, line in lines:
        entry, places = _stripped(number, line)
        if not entry or entry[0] in "#!":
            continue
        while _is_continued(entry):
            more, its_places = _stripped(*next(lines, (number, "")))
            entry, places = entry[:-1] + more, places[:-1] + its_places
        match = re.match(r"((?:[^\\=:\s]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", entry, re.DOTALL)
        if match is not None:
            name = _unescaped(match[1])
            pairs[name] = _unescaped(match[2])
            pairs.places[name] = [places[match.start(2) + one.start()] for one in _CHARACTER.finditer(match[2])]
    return pairs


_CHARACTER = re.compile(r"\\u[0-9A-Fa-f]{4}|\\.|.", re.DOTALL)
"""A character of a value as it is written."""


def _stripped(number: int, line: str) -> tuple[str, list[tuple[int, int]]]:
    """A line without its indent, and the place of each of its characters."""
    entry = line.lstrip(" \t\f")
    first = len(line) - len(entry) + 1
    return entry, [(number, first + at) for at in range(len(entry))]


def _is_continued(entry: str) -> bool:
    return (len(entry) - len(entry.rstrip("\\"))) % 2 == 1


def _unescaped(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        escaped = match[1]
        return chr(int(escaped[1:], 16)) if len(escaped) == 5 else _ESCAPES.get(escaped, escaped)

    return re.sub(r"\\(u[0-9A-Fa-f]{4}|.)", replace, text, flags=re.DOTALL)


def translate(properties: Mapping[str, str], source: str) -> JavaConfiguration:
    return _Translation(properties, source).result()


def _open_quote(text: str) -> int | None:
    """Index of a quote of a JAAS configuration that is not closed."""
    opened: int | None = None
    for match in re.finditer(r"\\.|[\"']", text, re.DOTALL):
        if opened is None and match[0] in "\"'":
            opened = match.start()
        elif opened is not None and match[0] == text[opened]:
            opened = None
    return opened


class _Translation:
    """One translation; collects untranslatable settings in ``problems``."""

    def __init__(self, properties: Mapping[str, str], source: str) -> None:
        self.properties, self.source = properties, source
        self.client: dict[str, str] = {}
        self.secrets: dict[str, str] = {}
        self.problems: list[str] = []
        self._left_out: list[str] = []

    def result(self) -> JavaConfiguration:
        self._refuse_stray_quotes()
        protocol = (self._get("security.protocol") or "PLAINTEXT").upper()
        if "security.protocol" in self._names():
            self.client["security_protocol"] = protocol
        if protocol.startswith("SASL"):
            self._sasl()
        if protocol.endswith("SSL"):
            self._ssl()
        for name in _SAME:
            value = self._get(name)
            if value is not None:
                self.client[name.replace(".", "_")] = value
        self.problems += [
            f"{name} names a Java class, which statecore cannot load"
            for name in _OWN_CLASSES
            if (value := self._get(name)) and not _TRANSLATED_CLASSES.fullmatch(value)
        ]
        guarantee, store_format, servers = self._guarantee(), self._format(), self._servers()
        self._raise_if_any()
        suppliers = self.properties.get("dsl.store.suppliers.class", "")
        remarks = [*(f"{name} is left out" for name in _IGNORED if self._get(name)), *self._left_out]
        remarks += [
            f"{setting} is not written: set {variable} in the environment of each reader of the spec"
            for setting, variable in (
                ("the password", PASSWORD_VARIABLE),
                ("the key's password", KEY_PASSWORD_VARIABLE),
                ("the client's secret", CLIENT_SECRET_VARIABLE),
            )
            if variable in self.secrets
        ]
        return JavaConfiguration(
            self.source,
            self.properties.get("application.id"),
            servers,
            guarantee,
            self.properties.get("enable.transactional.statestores", "").strip().lower() == "true",
            store_format,
            self.properties.get("default.dsl.store") == "in_memory" or suppliers.endswith("InMemoryDslStoreSuppliers"),
            self.client,
            self.secrets,
            tuple(remarks),
        )

    def _raise_if_any(self) -> None:
        if self.problems:
            raise Invalid(
                f"{self.source} cannot be translated for a client that is not Java:\n  "
                + "\n  ".join(self.problems)
                + "\n",
                code="config-unsupported",
                action="Follow each line, or omit --config and give --bootstrap-servers, --application-id and --kafka.",
                problems=self.problems,
            )

    def _refuse_stray_quotes(self) -> None:
        for name, value in self.properties.items():
            known = next(name.removeprefix(prefix) for prefix in _PREFIXES if name.startswith(prefix))
            found = re.search("[\"']", value) if known in _UNQUOTED else None
            at = found.start() if found else _open_quote(value) if known == "sasl.jaas.config" else None
            if at is not None:
                why = "Java takes it as part of the value" if known in _UNQUOTED else "it is not closed"
                self.problems.append(f"{self._place(name, at)}: {name} has a stray quote: {why}")
        self._raise_if_any()

    def _place(self, name: str, at: int) -> str:
        places = getattr(self.properties, "places", {}).get(name)
        return f"{self.source}:{places[at][0]}:{places[at][1]}" if places else self.source

    def _names(self) -> set[str]:
        return {name.removeprefix(prefix) for name in self.properties for prefix in _PREFIXES}

    def _get(self, name: str) -> str | None:
        """A setting as the restore consumer would find it, ``${env:NAME}`` as ``${NAME}``."""
        value = next((self.properties[prefix + name] for prefix in _PREFIXES if prefix + name in self.properties), None)
        if value is None:
            return None
        if _PROVIDED.search(value):
            self.problems.append(f"{name} comes from a config provider; write it out in a copy, or as ${{env:NAME}}")
            return None
        return _ENVIRONMENT.sub(r"${\1}", value).strip()

    def _guarantee(self) -> ProcessingGuarantee | None:
        value = self.properties.get("processing.guarantee", "").strip()
        known = [guarantee.value for guarantee in ProcessingGuarantee]
        if value and value not in known:
            self.problems.append(f"processing.guarantee is {value}; Kafka Streams 4 supports {' and '.join(known)}")
        return ProcessingGuarantee(value) if value in known else None

    def _servers(self) -> str | None:
        value = self._get("bootstrap.servers")
        if value is None or "${" in value:
            return value
        servers = parse_bootstrap_servers(value)
        if servers is None:
            self.problems.append(f"bootstrap.servers is {value}; Kafka expects host:port, or several with commas")
        return ",".join(servers or ())

    def _format(self) -> str | None:
        value = self.properties.get("dsl.store.format", "").strip().upper()
        if value not in ("", "DEFAULT", "HEADERS"):
            self.problems.append(f"dsl.store.format is {value}; Kafka Streams supports DEFAULT and HEADERS")
        return value or None

    def _sasl(self) -> None:
        mechanism = self._get("sasl.mechanism") or "GSSAPI"
        if mechanism not in SASL_MECHANISMS:
            self.problems.append(
                f"sasl.mechanism {mechanism} is not supported; supported: {', '.join(SASL_MECHANISMS)}"
            )
            return
        if "software.amazon.msk.auth.iam" in (self._get("sasl.login.callback.handler.class") or ""):
            mechanism = "AWS_MSK_IAM"
        self.client["sasl_mechanism"] = mechanism
        options = {
            match[1]: re.sub(r"\\(.)", r"\1", next(part for part in match.groups()[1:] if part is not None))
            for match in _JAAS_OPTION.finditer(self._get("sasl.jaas.config") or "")
        }
        if mechanism == "GSSAPI":
            service = self._get("sasl.kerberos.service.name") or options.get("serviceName")
            if service:
                self.client["sasl_kerberos_service_name"] = service
            return
        if mechanism == "OAUTHBEARER":
            self._oauthbearer(options)
        if mechanism in ("OAUTHBEARER", "AWS_MSK_IAM"):
            return
        if "username" not in options or "password" not in options:
            self.problems.append(
                "sasl.jaas.config has no username and password; give them with --kafka sasl_plain_username=NAME "
                "--kafka sasl_plain_password='${NAME}'"
            )
            return
        self.client["sasl_plain_username"] = options["username"]
        self._secret("sasl_plain_password", options["password"], PASSWORD_VARIABLE)

    def _oauthbearer(self, options: Mapping[str, str]) -> None:
        """Client credentials, by the names of KIP-1139 or the older ones of ``sasl.jaas.config``."""
        given = {
            "token_endpoint_url": self._get(f"{_OAUTH}token.endpoint.url"),
            "client_credentials_client_id": self._get(f"{_OAUTH}client.credentials.client.id")
            or options.get("clientId"),
            "scope": self._get(f"{_OAUTH}scope") or options.get("scope"),
        }
        secret = self._get(f"{_OAUTH}client.credentials.client.secret") or options.get("clientSecret")
        if not given["token_endpoint_url"] or not given["client_credentials_client_id"] or not secret:
            self.problems.append(
                f"sasl.mechanism OAUTHBEARER has no {_OAUTH}token.endpoint.url with client credentials "
                f"({_OAUTH}client.credentials.…); add them, or give --kafka sasl_oauth_token_provider=NAME"
            )
            return
        self.client |= {f"sasl_oauthbearer_{name}": value for name, value in given.items() if value}
        if (self._get(f"{_OAUTH}header.urlencode") or "").strip().lower() == "true":
            self.client["sasl_oauthbearer_header_urlencode"] = "true"
        extensions = {name: value for name, value in options.items() if name.startswith("extension_")}
        sent = [name for name, value in extensions.items() if "," not in value]
        if sent:
            self.client["sasl_oauthbearer_extensions"] = ",".join(
                f"{name.removeprefix('extension_')}={extensions[name]}" for name in sent
            )
        self._left_out += [
            f"{name} of sasl.jaas.config has a comma and is left out; a token provider can send it "
            "(sasl_oauth_token_provider)"
            for name in extensions
            if name not in sent
        ]
        self._secret("sasl_oauthbearer_client_credentials_client_secret", secret, CLIENT_SECRET_VARIABLE)

    def _ssl(self) -> None:
        trusted = self._pem("ssl.truststore", "certificates")
        if trusted:
            self.client["ssl_cafile"] = trusted
        keys = self._pem("ssl.keystore", "key")
        if keys:
            self.client["ssl_certfile"] = self.client["ssl_keyfile"] = keys
            password = self._get("ssl.key.password")
            if password:
                self._secret("ssl_password", password, KEY_PASSWORD_VARIABLE)
        algorithm = self._get("ssl.endpoint.identification.algorithm")
        if algorithm is not None:
            self.client["ssl_check_hostname"] = "true" if algorithm else "false"

    def _pem(self, store: str, inline: str) -> str | None:
        """The PEM file of a keystore or truststore; other forms are a problem."""
        location = self._get(f"{store}.location")
        kind = (self._get(f"{store}.type") or "JKS").upper()
        if any(self._get(name) for name in (f"{store}.{inline}", f"{store}.certificate.chain")):
            self.problems.append(
                f"{store} has its {inline} in the configuration itself; save that as a PEM file and give it as "
                f"{store}.location with {store}.type=PEM"
            )
            return None
        if location is None or kind == "PEM":
            return location
        self.problems.append(
            f"{store}.location {location} has the type {kind}, which only Java reads; convert it to PEM (keytool "
            f"-importkeystore -srckeystore {location} -destkeystore store.p12 -deststoretype PKCS12, then openssl "
            f"pkcs12 -in store.p12 -out store.pem) and set {store}.location to it and {store}.type=PEM"
        )
        return None

    def _secret(self, setting: str, value: str, variable: str) -> None:
        """Name a secret in the settings and keep its value separate, unless it comes from the environment itself."""
        if "${" in value:
            self.client[setting] = value
            return
        self.client[setting] = f"${{{variable}}}"
        self.secrets[variable] = value
