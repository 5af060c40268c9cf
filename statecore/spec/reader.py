"""Reads and validates ``stores.yaml``: the declared stores of an application.

All problems of a file are reported at once with file, line, column, the actual and the expected content. Unknown keys
are refused with a suggestion: a misspelt ``retention`` that is silently ignored would build a wrong store.

.. code-block:: yaml

    application_id: orders
    bootstrap_servers: localhost:9092
    processing_guarantee: exactly_once_v2
    transactional_state_stores: true
    statestore.checkpoint.interval.ms: 300000
    kafka: {security_protocol: SASL_SSL, sasl_plain_password: "${KAFKA_PASSWORD}"}
    spark: {executor_python: /opt/statecore/bin/python, executor_memory: 2g, conf: {spark.cores.max: 8}}
    subtopologies:
      "0":
        stores:
          orders-by-id: {kind: timestamped-key-value}
          profile:      {kind: key-value, changelog: profiles}
          scratch:      {kind: key-value, changelog: none}
          geo-index:    {kind: custom}
    global_stores:
      products: {kind: timestamped-key-value, topic: products}
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from statecore.errors import Invalid, NotFound
from statecore.filesystem import read_regular
from statecore.formats.checkpoint import position_file, store_checkpoint_file
from statecore.formats.kinds import RETAINED_KINDS, StoreKind
from statecore.formats.releases import CHECKPOINT_FILE, PLAIN_PARENT
from statecore.spec.bootstrap_servers import parse_bootstrap_servers
from statecore.spec.client_settings import read_client_settings
from statecore.spec.model import (
    CHECKPOINT_INTERVAL,
    DEFAULT_CHECKPOINT_INTERVAL_MS,
    MAX_CHECKPOINT_INTERVAL_MS,
    MIN_CHECKPOINT_INTERVAL_MS,
    NO_CHANGELOG,
    UNKNOWN_CHANGELOG,
    ApplicationSpec,
    ProcessingGuarantee,
    StoreSpec,
    default_changelog,
)
from statecore.spec.spark_settings import SparkSettings, read_spark_settings
from statecore.spec.tree import MAPPING, SCALAR, Node, Problems, suggestion, tree_of_mapping, tree_of_text
from statecore.spec.units import DURATION_EXPECTED, parse_duration
from statecore.system_errors import system_error

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_NAME_MAX = 255
"""Bytes in the name of a file."""

_TOP = (
    *("application_id", "bootstrap_servers", "processing_guarantee", "kafka", "kafka_connection", "spark"),
    *("transactional_state_stores", CHECKPOINT_INTERVAL, "subtopologies", "global_stores"),
)
_STORE = ("kind", "retention", "segment_interval", "changelog")
_GLOBAL = ("kind", "topic", "retention", "segment_interval", "reprocess")
_CONNECTION = re.compile(r"[\w#!()\-.:/\\]{1,200}")  # ids that Airflow accepts
_REMOVED_GUARANTEES = ("exactly_once", "exactly_once_beta")


def load_spec(path: str | Path, *, environ: Mapping[str, str] = os.environ) -> ApplicationSpec:
    file = Path(path)
    try:
        text = read_regular(file).decode()
    except FileNotFoundError:
        raise NotFound(
            f"There is no spec {file}.",
            code="spec-not-found",
            action="Check the path, or create one with `statecore discover`.",
        ) from None
    except UnicodeDecodeError as error:
        raise Invalid(
            f"The spec {file} is not UTF-8: {error}.", code="spec-invalid", action="Save it as UTF-8."
        ) from error
    except OSError as error:
        raise system_error(error, f"The spec {file} cannot be read", action="Check the file.") from error
    return read_spec(text, source=str(file), environ=environ)


def read_spec(text: str, *, source: str = "<spec>", environ: Mapping[str, str] = os.environ) -> ApplicationSpec:
    """Read a spec from its YAML or JSON text. Raises ``Invalid`` with all problems."""
    problems = Problems(source)
    return _application(tree_of_text(text, problems), environ, problems)


def parse_spec(
    mapping: Mapping[str, Any], source: str = "<inline spec>", *, environ: Mapping[str, str] = os.environ
) -> ApplicationSpec:
    """Read a spec from nested mappings (JSON, a Dag's parameter). Raises ``Invalid`` with all problems."""
    problems = Problems(source)
    return _application(tree_of_mapping(mapping, problems), environ, problems)


def _application(root: Node, environ: Mapping[str, str], problems: Problems) -> ApplicationSpec:
    if root.shape != MAPPING:
        problems.expected(root, "a mapping that begins with 'application_id:'")
        problems.raise_if_any()
    _refuse_unknown_keys(root, _TOP, problems)
    application_id = _legal_name(root, "application_id", "an application id", problems) or "?"
    servers = _servers(root, problems)
    guarantee = _guarantee(root, problems)
    transactional = _flag(root, "transactional_state_stores", problems)
    kafka: dict[str, Any] = {}
    declared: dict[str, Any] = {}
    if "kafka" in root.fields:
        kafka, declared = read_client_settings(root.fields["kafka"][1], environ, problems)
    connection = _connection(root, problems)
    spark = read_spark_settings(root.fields["spark"][1], problems) if "spark" in root.fields else SparkSettings()
    interval = _checkpoint_interval(root, problems)
    stores = _subtopologies(root, application_id, problems)
    global_stores = _global_stores(root, problems)
    if not stores and not global_stores and not problems:
        problems.add(root, "no store is declared, expected at least one below 'subtopologies' or 'global_stores'")
    _refuse_repeated_names(stores + global_stores, root, problems)
    _refuse_reserved_names(stores + global_stores, problems)
    problems.raise_if_any()
    return ApplicationSpec(
        application_id=application_id,
        bootstrap_servers=servers,
        processing_guarantee=guarantee,
        stores=tuple(store for _, store in stores),
        global_stores=tuple(store for _, store in global_stores),
        kafka=kafka,
        source=problems.source,
        kafka_declared=declared,
        kafka_connection=connection,
        spark=spark,
        checkpoint_interval_ms=interval,
        transactional_state_stores=transactional,
    )


def _refuse_unknown_keys(node: Node, known: tuple[str, ...], problems: Problems) -> None:
    for name, (key, _) in node.fields.items():
        if name not in known:
            hint = suggestion(name, known) or f"; known here: {', '.join(known)}"
            problems.add(key, f"unknown key '{name}'{hint}")


def _text(node: Node, key: str, expectation: str, problems: Problems, *, required: bool = True) -> Node | None:
    """The scalar of ``key``, or ``None`` after recording a problem."""
    if key not in node.fields:
        if required:
            problems.add(node, f"'{key}' is missing, expected {expectation}")
        return None
    value = node.fields[key][1]
    if value.shape != SCALAR or value.text is None:
        problems.expected(value, expectation)
        return None
    return value


def _legal_name(node: Node, key: str, what: str, problems: Problems, *, required: bool = True) -> str | None:
    value = _text(node, key, what, problems, required=required)
    if value is None:
        return None
    if not _is_legal_name(value.text or ""):
        problems.expected(value, f"{what} of letters, digits, '.', '_' and '-' (at most 249)")
        return None
    return value.text


def _is_legal_name(text: str) -> bool:
    return bool(_LEGAL_NAME.fullmatch(text)) and text not in (".", "..")


def is_store_name(text: str, *, is_logged: bool = True) -> bool:
    """Whether a store can be declared by this name.

    A logged store has the characters of topics in its name. ``Topology.addStateStore`` checks none, so one without
    changelog may have any name that a directory, and ``.checkpoint_<store>`` beside it, can have. Control characters
    are refused.
    """
    if is_logged or _is_legal_name(text):
        return _is_legal_name(text)
    if text in ("", ".", "..") or "/" in text or not text.isprintable():
        return False
    return len(store_checkpoint_file(text).encode()) <= _NAME_MAX


def _servers(root: Node, problems: Problems) -> str:
    expectation = "host:port, or several separated by commas"
    value = _text(root, "bootstrap_servers", expectation, problems)
    if value is None:
        return ""
    servers = parse_bootstrap_servers(value.text or "")
    if servers is None:
        problems.expected(value, expectation)
    return ",".join(servers or ())


def _guarantee(root: Node, problems: Problems) -> ProcessingGuarantee:
    known = [guarantee.value for guarantee in ProcessingGuarantee]
    value = _text(root, "processing_guarantee", " or ".join(known) + ", as the application has it", problems)
    if value is None:
        return ProcessingGuarantee.AT_LEAST_ONCE
    if value.text in known:
        return ProcessingGuarantee(value.text)
    hint = suggestion(value.text or "", known)
    if value.text in _REMOVED_GUARANTEES:
        hint = "; Kafka Streams 4 supports only exactly_once_v2"
    problems.expected(value, " or ".join(known) + hint)
    return ProcessingGuarantee.AT_LEAST_ONCE


def _connection(root: Node, problems: Problems) -> str | None:
    expectation = "the id of an Airflow connection"
    value = _text(root, "kafka_connection", expectation, problems, required=False)
    if value is not None and not _CONNECTION.fullmatch(value.text or ""):
        problems.expected(value, expectation)
    return value.text if value is not None else None


def _checkpoint_interval(root: Node, problems: Problems) -> int:
    expectation = "milliseconds, or a duration such as 90s or 5m, from 1s to 365d"
    value = _text(root, CHECKPOINT_INTERVAL, expectation, problems, required=False)
    text = "" if value is None else value.text or ""
    found = int(text) if re.fullmatch("[0-9]{1,15}", text) else parse_duration(text)
    if value is None:
        return DEFAULT_CHECKPOINT_INTERVAL_MS
    if found is None or not MIN_CHECKPOINT_INTERVAL_MS <= found <= MAX_CHECKPOINT_INTERVAL_MS:
        problems.expected(value, expectation)
        return DEFAULT_CHECKPOINT_INTERVAL_MS
    return found


def _subtopologies(root: Node, application_id: str, problems: Problems) -> list[tuple[Node, StoreSpec]]:
    if "subtopologies" not in root.fields:
        return []
    section = root.fields["subtopologies"][1]
    if section.shape != MAPPING:
        problems.expected(section, 'a mapping from subtopology numbers to their stores, such as "0": {stores: ...}')
        return []
    stores = []
    for number, (key, subtopology) in section.fields.items():
        if not re.fullmatch(r"0|[1-9][0-9]{0,8}", number):
            problems.expected(key, "a subtopology number, as printed by Topology.describe()")
            continue
        if subtopology.shape != MAPPING:
            problems.expected(subtopology, "a mapping with 'stores'")
            continue
        _refuse_unknown_keys(subtopology, ("stores",), problems)
        if "stores" not in subtopology.fields:
            problems.add(key, "'stores' is missing, expected a mapping from store names to stores")
            continue
        declared = subtopology.fields["stores"][1]
        for node, name, body in _store_bodies(declared, problems):
            stores.append((node, _store(name, body, int(number), application_id, problems)))
    return stores


def _store_bodies(section: Node, problems: Problems) -> list[tuple[Node, str, Node]]:
    """``(key node, name, body)`` of every store in a mapping; malformed ones are recorded as problems."""
    if section.shape != MAPPING:
        problems.expected(section, "a mapping from store names to stores, such as orders: {kind: key-value}")
        return []
    bodies = []
    for name, (key, body) in section.fields.items():
        is_logged = "changelog" not in body.fields or body.fields["changelog"][1].text != NO_CHANGELOG
        if not is_store_name(name, is_logged=is_logged):
            problems.expected(key, "a store name of letters, digits, '.', '_' and '-' (at most 249)")
        elif body.shape != MAPPING:
            problems.expected(body, "a store, such as {kind: key-value}")
        else:
            bodies.append((key, name, body))
    return bodies


def _store(name: str, body: Node, subtopology: int, application_id: str, problems: Problems) -> StoreSpec:
    _refuse_unknown_keys(body, _STORE, problems)
    changelog = _changelog(body, problems)
    kind = _kind(body, problems)
    retention, interval = _times(body, kind, problems, required=changelog != NO_CHANGELOG)
    return StoreSpec(
        name=name,
        kind=kind,
        subtopology=subtopology,
        changelog=changelog or default_changelog(application_id, name),
        retention_ms=retention,
        segment_interval_ms=interval,
        line=body.line,
    )


def _changelog(body: Node, problems: Problems) -> str | None:
    """The topic, ``none`` if the application does not log the store, or ``?``; ``None`` for the default topic."""
    if "changelog" in body.fields and body.fields["changelog"][1].text == UNKNOWN_CHANGELOG:
        return UNKNOWN_CHANGELOG
    return _legal_name(body, "changelog", "the name of a topic, or none", problems, required=False)


def _global_stores(root: Node, problems: Problems) -> list[tuple[Node, StoreSpec]]:
    if "global_stores" not in root.fields:
        return []
    stores = []
    for node, name, body in _store_bodies(root.fields["global_stores"][1], problems):
        _refuse_unknown_keys(body, _GLOBAL, problems)
        topic = _legal_name(body, "topic", "the source topic of the global store", problems)
        kind = _kind(body, problems)
        retention, interval = _times(body, kind, problems)
        reprocess = _flag(body, "reprocess", problems)
        stores.append(
            (node, StoreSpec(name, kind, -1, topic or "?", retention, interval, body.line, reprocess=reprocess))
        )
    return stores


def _kind(body: Node, problems: Problems) -> StoreKind:
    known = [kind.value for kind in StoreKind]
    value = _text(body, "kind", "the kind of the store: " + ", ".join(known), problems)
    if value is None:
        return StoreKind.UNKNOWN
    if value.text in known:
        return StoreKind(value.text)
    problems.expected(value, "a kind of store" + (suggestion(value.text or "", known) or ": " + ", ".join(known)))
    return StoreKind.UNKNOWN


def _times(body: Node, kind: StoreKind, problems: Problems, *, required: bool = True) -> tuple[int | None, int | None]:
    retention = _duration(body, "retention", problems)
    interval = _duration(body, "segment_interval", problems)
    if interval == 0:
        problems.expected(body.fields["segment_interval"][1], "a duration above zero")
    has_time = kind in RETAINED_KINDS or kind in (StoreKind.UNKNOWN, StoreKind.IN_MEMORY, StoreKind.CUSTOM)
    for key in ("retention", "segment_interval"):
        if key in body.fields and not has_time:
            problems.add(body.fields[key][0], f"a store of kind '{kind}' has no '{key}'")
    if required and kind in RETAINED_KINDS and "retention" not in body.fields:
        problems.add(body, f"'retention' is missing; a store of kind '{kind}' needs it, expected {DURATION_EXPECTED}")
    return retention, interval


def _flag(body: Node, key: str, problems: Problems) -> bool:
    value = _text(body, key, "true or false", problems, required=False)
    if value is not None and value.text not in ("true", "false"):
        problems.expected(value, "true or false")
    return value is not None and value.text == "true"


def _duration(body: Node, key: str, problems: Problems) -> int | None:
    value = _text(body, key, DURATION_EXPECTED, problems, required=False)
    if value is None:
        return None
    milliseconds = parse_duration(value.text or "")
    if milliseconds is None:
        problems.expected(value, DURATION_EXPECTED)
    return milliseconds


def _refuse_reserved_names(stores: list[tuple[Node, StoreSpec]], problems: Problems) -> None:
    """Refuse a store in segments whose directory would be the one of all other stores, or a file of their offsets."""
    positions = {(store.subtopology, position_file(store.name)): store.name for _, store in stores if _has_file(store)}
    for node, store in stores:
        if store.kind.is_segmented and (other := positions.get((store.subtopology, store.name))) is not None:
            problems.add(
                node,
                f"a store of kind '{store.kind}' cannot be called '{store.name}' beside the store '{other}', whose "
                "position Kafka Streams reads from a file of that name: only the application's first start succeeds",
            )
        if store.kind.is_segmented and store.name in (PLAIN_PARENT, CHECKPOINT_FILE):
            problems.add(
                node, f"a store of kind '{store.kind}' cannot be called '{store.name}', which its task has already"
            )


def _has_file(store: StoreSpec) -> bool:
    """Whether Kafka Streams looks for a file with the position of a store, as of every one in RocksDB."""
    return store.kind.can_be_built or store.kind is StoreKind.UNKNOWN


def _refuse_repeated_names(stores: list[tuple[Node, StoreSpec]], root: Node, problems: Problems) -> None:
    first: dict[str, Node] = {}
    for node, store in stores:
        if store.name in first:
            on_line = f" (first on line {first[store.name].line})" if root.line else ""
            problems.add(node, f"the store '{store.name}' is declared twice{on_line}; names are unique in a topology")
        else:
            first[store.name] = node
