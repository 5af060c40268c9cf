"""Writes an application's spec: as ``stores.yaml`` for people, as JSON for Spark, as a hash for comparison.

No form contains a secret: the ``kafka`` section is written as declared, with ``${NAME}`` unexpanded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from statecore.spec.model import (
    CHECKPOINT_INTERVAL,
    DEFAULT_CHECKPOINT_INTERVAL_MS,
    ApplicationSpec,
    StoreSpec,
    default_changelog,
)
from statecore.spec.units import format_duration, parse_duration


def spec_to_mapping(spec: ApplicationSpec) -> dict[str, Any]:
    """The spec as nested mappings for :func:`statecore.spec.reader.parse_spec`."""
    subtopologies: dict[str, Any] = {}
    for store in spec.stores:
        stores = subtopologies.setdefault(str(store.subtopology), {"stores": {}})["stores"]
        stores[store.name] = _store_fields(store, spec.application_id)
    document: dict[str, Any] = {
        "application_id": spec.application_id,
        "bootstrap_servers": spec.bootstrap_servers,
        "processing_guarantee": str(spec.processing_guarantee),
    }
    if spec.transactional_state_stores:
        document["transactional_state_stores"] = True
    if spec.kafka_declared:
        document["kafka"] = dict(spec.kafka_declared)
    if spec.kafka_connection:
        document["kafka_connection"] = spec.kafka_connection
    if settings := spec.spark.to_mapping():
        document["spark"] = settings
    if spec.checkpoint_interval_ms != DEFAULT_CHECKPOINT_INTERVAL_MS:
        document[CHECKPOINT_INTERVAL] = spec.checkpoint_interval_ms
    if subtopologies:
        document["subtopologies"] = subtopologies
    if spec.global_stores:
        document["global_stores"] = {store.name: _store_fields(store, None) for store in spec.global_stores}
    return document


def _store_fields(store: StoreSpec, application_id: str | None) -> dict[str, str]:
    fields = {"kind": str(store.kind)}
    if application_id is None:
        fields["topic"] = store.changelog
    elif store.changelog != default_changelog(application_id, store.name):
        fields["changelog"] = store.changelog
    if store.retention_ms is not None:
        fields["retention"] = format_duration(store.retention_ms)
    if store.segment_interval_ms is not None:
        fields["segment_interval"] = format_duration(store.segment_interval_ms)
    if store.reprocess:
        fields["reprocess"] = "true"
    return fields


def spec_to_json(spec: ApplicationSpec) -> str:
    """The spec as one line of JSON, without secrets, to send to Spark."""
    return json.dumps(spec_to_mapping(spec), separators=(",", ":"))


def spec_hash(spec: ApplicationSpec) -> str:
    """SHA-256 (hex) of the declarations; order, comments, Kafka connection and Spark settings do not affect it."""
    apart = ("bootstrap_servers", "kafka", "kafka_connection", "spark", CHECKPOINT_INTERVAL)
    document = {key: value for key, value in spec_to_mapping(spec).items() if key not in apart}
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def spec_to_yaml(spec: ApplicationSpec, *, header: tuple[str, ...] = (), notes: Mapping[str, str] | None = None) -> str:
    comments = notes or {}
    document = spec_to_mapping(spec)
    lines = [f"# {_escaped(line)}".rstrip() for line in header]
    for key in ("application_id", "bootstrap_servers", "processing_guarantee", "transactional_state_stores"):
        if key in document:
            lines.append(_commented(f"{key}: {_scalar(document[key])}", comments.get(key)))
    if "kafka" in document:
        lines.append("kafka:")
        lines += [f"  {_scalar(key)}: {_scalar(value)}" for key, value in document["kafka"].items()]
    if "kafka_connection" in document:
        lines.append(f"kafka_connection: {_scalar(document['kafka_connection'])}")
    if "spark" in document:
        lines.append(f"spark: {_flow(document['spark'])}")
    if CHECKPOINT_INTERVAL in document:
        lines.append(f"{CHECKPOINT_INTERVAL}: {document[CHECKPOINT_INTERVAL]}")
    if "subtopologies" in document:
        lines.append("subtopologies:")
        for number, body in document["subtopologies"].items():
            lines += [f'  "{number}":', "    stores:"]
            lines += [_commented(f"      {line}", note) for line, note in _stores(body["stores"], comments)]
    if "global_stores" in document:
        lines.append("global_stores:")
        lines += [_commented(f"  {line}", note) for line, note in _stores(document["global_stores"], comments)]
    return "\n".join(lines) + "\n"


def _stores(stores: Mapping[str, Mapping[str, str]], notes: Mapping[str, str]) -> list[tuple[str, str | None]]:
    names = {name: _scalar(name) + ":" for name in stores}
    width = max(len(name) for name in names.values())
    return [
        (
            f"{names[name].ljust(width)} {{"
            + ", ".join(f"{key}: {value if key == 'reprocess' else _scalar(value)}" for key, value in body.items())
            + "}",
            notes.get(name),
        )
        for name, body in stores.items()
    ]


def _commented(line: str, note: str | None) -> str:
    return f"{line}  # {_escaped(note)}" if note else line


def _scalar(value: Any) -> str:
    """One scalar in YAML's flow style, quoted if it would be read as something else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    text = str(value)
    plain = text.replace("-", "").replace("_", "").replace(".", "").replace(":", "").isalnum() and text.isascii()
    special = text.endswith(":") or not (text[:1].isalpha() or parse_duration(text))
    word = text.lower() in {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
    return text if plain and not special and not word else _flow(text)


def _flow(value: Any) -> str:
    """JSON that is YAML, too: not with surrogate pairs, nor with what YAML reads as the end of a line."""
    return _escaped(json.dumps(value, ensure_ascii=False))


def _escaped(text: str) -> str:
    """A text in one line of what YAML calls printable; Python's escapes are those of YAML's double quotes."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
