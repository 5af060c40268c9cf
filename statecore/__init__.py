"""statecore: rebuilds, checkpoints, migrates and snapshots the state of Kafka Streams applications."""

from __future__ import annotations

__version__ = "0.1.0"
