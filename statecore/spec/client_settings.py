"""The ``kafka:`` section of a spec: allowed client settings, and expansion of ``${NAME}``.

Secret values must come from the environment, so that a spec can be committed, sent to Spark and shown in Airflow.
Messages never contain a value of this section.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from statecore.spec.tree import MAPPING, SCALAR, Node, Problems, suggestion, tree_of_mapping, typed_value

CLIENT_SETTINGS = frozenset(
    {
        "client_dns_lookup",
        "client_id",
        "connections_max_idle_ms",
        "metadata_max_age_ms",
        "proxy_url",
        "receive_message_max_bytes",
        "reconnect_backoff_max_ms",
        "reconnect_backoff_ms",
        "request_timeout_ms",
        "sasl_kerberos_domain_name",
        "sasl_kerberos_name",
        "sasl_kerberos_service_name",
        "sasl_mechanism",
        "sasl_oauth_token_provider",
        "sasl_oauthbearer_client_credentials_client_id",
        "sasl_oauthbearer_client_credentials_client_secret",
        "sasl_oauthbearer_extensions",
        "sasl_oauthbearer_header_urlencode",
        "sasl_oauthbearer_scope",
        "sasl_oauthbearer_token_endpoint_url",
        "sasl_plain_password",
        "sasl_plain_username",
        "security_protocol",
        "socket_connection_setup_timeout_max_ms",
        "socket_connection_setup_timeout_ms",
        "ssl_cafile",
        "ssl_certfile",
        "ssl_check_hostname",
        "ssl_crlfile",
        "ssl_keyfile",
        "ssl_password",
    }
)
"""kafka-python's connection settings that can be expressed in a file, and Kafka's names for OAUTHBEARER (KIP-1139).

Kafka has no name for SASL extensions, which it takes from ``sasl.jaas.config``; librdkafka's is used.
"""

SECRET_SETTINGS = frozenset(
    {"sasl_oauthbearer_client_credentials_client_secret", "sasl_plain_password", "ssl_password"}
)
"""Settings that are refused as literal values; they must come from the environment."""

SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER", "AWS_MSK_IAM")
_CHOICES = {
    "security_protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "sasl_mechanism": SASL_MECHANISMS,
}
_REFERENCE = re.compile(r"\$\{([^}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read_client_settings(
    node: Node, environ: Mapping[str, str], problems: Problems
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the section: the settings with ``${NAME}`` expanded, and the same as declared."""
    expanded: dict[str, Any] = {}
    declared: dict[str, Any] = {}
    if node.shape != MAPPING:
        problems.add(node, "expected a mapping of client settings, such as {security_protocol: SSL}")
        return expanded, declared
    for name, (key, value) in node.fields.items():
        if name == "bootstrap_servers":
            problems.add(key, "'bootstrap_servers' belongs at the top level of the spec")
        elif name not in CLIENT_SETTINGS:
            problems.add(key, f"unknown client setting '{name}'{suggestion(name, CLIENT_SETTINGS)}")
        elif value.shape != SCALAR or value.text is None:
            problems.add(value, "expected one value (a text, a number, true or false)")
        else:
            written, filled = value.text, _expand(name, value, environ, problems)
            declared[name] = written if "${" in written else _typed(name, written)
            expanded[name] = _typed(name, filled)
            # The client checks values from the environment: a reader elsewhere may have another environment.
            if "${" not in written and not isinstance(expanded[name], _type_of(name)):
                problems.add(value, f"expected {'true or false' if _type_of(name) is bool else 'a whole number'}")
    return expanded, declared


def _type_of(name: str) -> type:
    if name == "ssl_check_hostname":
        return bool
    return int if name.endswith(("_ms", "_bytes")) else str


def _typed(name: str, text: str) -> Any:
    return text if _type_of(name) is str else typed_value(text)


def _expand(name: str, node: Node, environ: Mapping[str, str], problems: Problems) -> str:
    text = node.text or ""
    if "${" not in text:
        if name in SECRET_SETTINGS:
            problems.add(node, f"a secret is written out, expected a reference to the environment: {name}: ${{NAME}}")
        elif name in _CHOICES and text not in _CHOICES[name]:
            problems.add(node, "expected one of " + ", ".join(_CHOICES[name]))
        return text

    def replace(match: re.Match[str]) -> str:
        variable = match[1]
        if not _NAME.fullmatch(variable):
            problems.add(node, "expected ${NAME} with the name of an environment variable")
        elif variable not in environ:
            problems.add(node, f"the environment variable {variable} is not set", variable=variable)
        else:
            return environ[variable]
        return ""

    return _REFERENCE.sub(replace, text)


def client_settings(
    settings: Mapping[str, Any], environ: Mapping[str, str], *, source: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of a mapping instead of a file, with ``${NAME}`` expanded, and the same as declared."""
    problems = Problems(source)
    result = read_client_settings(tree_of_mapping(settings, problems), environ, problems)
    problems.raise_if_any()
    return result
