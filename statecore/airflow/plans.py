"""The plan of a ``plan_only`` run, for the task's log and XCom.

The job writes ``RestorePlan.to_json()`` instead of a restore's report. Plans have a directory of their own, because
the pages that show reports must not take a plan for one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from statecore.airflow.reports import PART_LIMIT, columns

_FIELDS = ("task", "store", "kind", "topic", "partition", "start", "end")
"""Fields of a partition's plan that are copied unchanged."""


def plan_path(report_file: Path) -> Path:
    """Path of the plan for the report path of a restore."""
    return report_file.parent / "plans" / report_file.name


def bounded(plan: Mapping[str, Any], limit: int = PART_LIMIT) -> dict[str, Any]:
    """The plan for XCom: its totals, and as many partitions as fit into ``limit`` bytes of JSON."""
    kept: list[dict[str, Any]] = []
    size = 0
    for part in plan["partitions"]:
        shown = {name: part[name] for name in _FIELDS}
        shown |= {"tail_left": part["log_end"] - part["end"], "ranges": len(part["ranges"])}
        size += len(json.dumps(shown))
        if size > limit:
            break
        kept.append(shown)
    return {
        "application_id": plan["application_id"],
        "processing_guarantee": plan["processing_guarantee"],
        "stores": sorted({str(part["store"]) for part in plan["partitions"]}),
        "totals": {
            "partitions": len(plan["partitions"]),
            "offsets": sum(part["end"] - part["start"] for part in plan["partitions"]),
        },
        "partitions": kept,
        "partitions_left_out": len(plan["partitions"]) - len(kept),
    }


def summary(plan: Mapping[str, Any]) -> dict[str, Any]:
    """The bounded plan without its partitions."""
    return {"plan_only": True, **{name: value for name, value in plan.items() if not name.startswith("partitions")}}


def table(plan: Mapping[str, Any]) -> str:
    """The bounded plan as a table for the task's log."""
    headings = ("task", "store", "kind", "changelog", "partition", "from", "to", "tail left", "ranges")
    fields = (*_FIELDS, "tail_left", "ranges")
    lines = columns(headings, [[part[name] for name in fields] for part in plan["partitions"]])
    if plan["partitions_left_out"]:
        lines.append(f"and {plan['partitions_left_out']:,} more partitions")
    totals = plan["totals"]
    lines.append(f"{totals['partitions']:,} store partitions, at most {totals['offsets']:,} records to read")
    return "\n".join(lines)
