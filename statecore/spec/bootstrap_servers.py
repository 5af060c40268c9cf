"""``bootstrap.servers`` as Kafka's clients read it (``ClientUtils.parseAndValidateAddresses``)."""

from __future__ import annotations

import re

_SERVER = re.compile(r"(?:[0-9A-Za-z%._-]*://)?(\[[0-9A-Fa-f:.%]+\]|[^\s:,/\[\]\"']+):([0-9]{1,5})")


def parse_bootstrap_servers(text: str) -> tuple[str, ...] | None:
    """The addresses as ``host:port``, without the protocol that may stand before them; ``None`` if one is malformed."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _SERVER.fullmatch(part)
        if match is None or not 0 < int(match[2]) < 65536:
            return None
        found.append(f"{match[1]}:{match[2]}")
    return tuple(found) or None
