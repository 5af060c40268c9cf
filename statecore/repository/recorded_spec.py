"""The spec that a snapshot records."""

from __future__ import annotations

from dataclasses import replace

from statecore.repository.manifest import Manifest
from statecore.spec.model import ApplicationSpec
from statecore.spec.reader import parse_spec

_NO_BROKERS = "nobody:1"
"""Placeholder for the brokers, which a snapshot does not record."""


def recorded_spec(manifest: Manifest) -> ApplicationSpec:
    """The spec that a snapshot records, without brokers."""
    declared = parse_spec({**manifest.spec, "bootstrap_servers": _NO_BROKERS}, f"<snapshot {manifest.snapshot}>")
    return replace(declared, bootstrap_servers="")
