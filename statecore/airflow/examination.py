"""What ``statecore doctor`` says of a directory that was migrated: a second look, by eyes that had no part in it.

A finding that would keep the release from opening the directory, or lose something, fails the task, unless it is of a
Kafka Streams task that the plan left as it is: that was said before, and approved.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from statecore.errors import Corrupted

MODULE = "statecore.cli.main"

_BAD = ("error", "loss")
_SHOWN = 20


def arguments(request: Mapping[str, Any]) -> list[str]:
    """What the command is given for the directory of a migration's request. Brokers are not asked."""
    words = ["doctor", "--json", "--offline", "--state-dir", request["state_dir"]]
    words += ["--application-id", request["application_id"], "--for", request["to"]]
    if request.get("spec_path"):
        words += ["--spec", request["spec_path"]]  # it says the guarantee, and the command takes no other
    elif request.get("processing_guarantee"):
        words += ["--processing-guarantee", request["processing_guarantee"]]
    for task in request.get("tasks") or ():
        words += ["--task", task]
    return words


def findings(lines: Sequence[str]) -> list[dict[str, Any]] | None:
    """What was found, from what the command has printed; ``None`` where it has examined nothing."""
    for line in reversed(lines):
        if line.startswith("{"):
            try:
                document = json.loads(line)
            except ValueError:
                continue
            if "applications" in document:
                return [finding for one in document["applications"] for finding in one["findings"]]
    return None


def in_words(finding: Mapping[str, Any]) -> str:
    """A finding as a line of a log."""
    where = " of ".join(name for name in (finding.get("store"), finding.get("task")) if name)
    return f"{finding['severity']} {finding['code']}{f' ({where})' if where else ''}: {finding['what']}"


def check(found: Sequence[Mapping[str, Any]], left: Collection[str], where: str) -> None:
    """Refuse what keeps a directory from being opened, or loses something.

    Args:
        found: what was found.
        left: tasks that the plan has left as they are.
        where: the directory, for the message.

    Raises:
        Corrupted: something is that bad.
    """
    bad = [one for one in found if one["severity"] in _BAD and one.get("task") not in left]
    if bad:
        said = "\n".join(f"  {in_words(one)}" for one in bad[:_SHOWN])
        more = f"\n  and {len(bad) - _SHOWN:,} more" if len(bad) > _SHOWN else ""
        raise Corrupted(
            f"{where} was migrated, and statecore doctor finds {len(bad)} things that are bad:\n{said}{more}",
            action="See docs/findings for each of them before the application is started.",
        )
