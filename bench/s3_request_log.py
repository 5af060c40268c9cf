"""Counts the requests of all processes in an S3 server's log, retries included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

KINDS = ("PUT", "POST", "GET", "HEAD", "LIST", "DELETE")
"""Kinds of request, in the order of the tables. POST begins and completes what is sent in parts."""

_METHOD, _QUERY = 5, 8


class RequestLog:
    """The requests from now on.

    Args:
        log: what the server prints, a line for each request before it is answered.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._from = log.stat().st_size

    def counts(self) -> Mapping[str, int]:
        """How many there were of each kind."""
        with self._log.open("rb") as log:
            log.seek(self._from)
            return counted(log.read().decode(errors="replace"))


def counted(lines: str) -> dict[str, int]:
    """The requests in a piece of versitygw's log, by kind.

    Raises:
        ValueError: one is of no kind that is known.
    """
    found = Counter(kind for line in lines.splitlines() if (kind := _kind_of(line)) is not None)
    if unknown := found.keys() - set(KINDS):
        raise ValueError(f"the server was asked for {', '.join(sorted(unknown))}, which no table has")
    return {kind: found[kind] for kind in KINDS}


def _kind_of(line: str) -> str | None:
    """Of ``time | vgw | status | seconds | address | method | path | error | query``; ``None`` of other lines."""
    cells = [cell.strip() for cell in line.split("|")]
    if len(cells) <= _QUERY or cells[1] != "vgw":
        return None
    lists = cells[_METHOD] == "GET" and "list-type=" in cells[_QUERY]
    return "LIST" if lists else cells[_METHOD]
