"""Named points at which a test lets the process die, so that recovery is tested at every step and not at lucky moments.

Code that must survive a crash takes a :class:`FaultPoints` and calls ``reach("placement.after-journal")``; in
production that does nothing. A test, or a person with ``STATECORE_FAULT`` in the environment, injects one fault:

``STATECORE_FAULT=<point>:kill[:n]``   the process kills itself with SIGKILL at the n-th time the point is reached
``STATECORE_FAULT=<point>:raise[:n]``  :class:`FaultInjected` is raised there instead

Every point is registered in :data:`FAULT_POINTS`, so that a test can iterate all of them and a point nobody
registered is a defect that shows at once.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

from statecore.errors import Invalid

VARIABLE = "STATECORE_FAULT"
"""Environment variable that :func:`fault_points_from_environment` reads."""

PLACEMENT_POINTS: tuple[str, ...] = (
    "placement.start",
    "placement.after-image-move",
    "placement.after-siblings",
    "placement.after-assembly",
    "placement.after-sync",
    "placement.before-journal",
    "placement.after-journal",
    "placement.before-swap",
    "placement.between-renames",
    "placement.after-swap",
    "placement.after-verify",
    "placement.after-mark",
    "placement.after-keeping",
    "placement.during-sweep",
    "placement.after-sweep",
    "placement.done",
)
"""In the order in which one placement reaches them; ``between-renames`` only where directories cannot be exchanged."""

RESTORE_POINTS: tuple[str, ...] = (
    "restore.after-lock",
    "restore.after-plan",
    "restore.after-runs",
    "restore.after-images",
    "restore.after-placement",
)
"""The driver of a restore, around the placement."""

RESTORE_PUBLISH_POINTS: tuple[str, ...] = ("restore.after-publication",)
"""A restore that publishes a snapshot."""

PUBLISH_POINTS: tuple[str, ...] = (
    "publish.before-task-manifests",
    "publish.after-task-manifests",
    "publish.after-manifest",
    "publish.before-head",
    "publish.after-head",
)
"""The driver of a job that publishes a snapshot; all of its files are in the repository before the first."""

CHECKPOINT_POINTS: tuple[str, ...] = ("checkpoint.after-plan", "checkpoint.after-runs", "checkpoint.after-publication")
"""A checkpoint; between the last two lie those of a publication."""

RECONCILE_POINTS: tuple[str, ...] = ("reconcile.after-logs", "reconcile.after-files")
"""A checkpoint that compares stores with their whole changelogs, before the publication; the first once a batch."""

FETCH_POINTS: tuple[str, ...] = (
    "fetch.after-lock",
    "fetch.after-plan",
    "fetch.during-download",
    "fetch.after-download",
    "fetch.after-images",
    "fetch.after-placement",
)
"""A fetch, around the placement; ``during-download`` whenever some bytes have come."""

BACKUP_POINTS: tuple[str, ...] = (
    "backup.after-lock",
    "backup.after-links",
    "backup.after-hashes",
    "backup.after-files",
)
"""A job that publishes a state directory, before the publication."""

COMPACTION_POINTS: tuple[str, ...] = (
    "compact.after-plan",
    "compact.after-download",
    "compact.after-merge",
    "compact.after-files",
)
"""A compaction, before the publication; the middle ones once a batch of runs."""

COLLECTION_POINTS: tuple[str, ...] = (
    "collection.during-deletion",
    "collection.after-head",
    "collection.after-list",
)
"""A collection of garbage; the first after each thousand blobs."""

COPY_POINTS: tuple[str, ...] = (
    "copy.after-descriptor",
    "copy.after-blob",
    "copy.before-head",
    "copy.after-head",
    "copy.after-list",
)
"""A copy into a replica; the second after each blob, the last three for each application."""

REPLICA_PROMOTION_POINTS: tuple[str, ...] = ("promote-replica.after-descriptor", "promote-replica.after-head")
"""A replica that becomes a primary; the second after each head."""

KEY_ROTATION_POINTS: tuple[str, ...] = ("rotate-key.after-descriptor",)
"""A rotation of the key of a repository."""

CHANGE_POINTS: tuple[str, ...] = ("change.after-lock", "change.after-plan")
"""A migration, repair or promotion, before it copies something."""

MIGRATE_POINTS: tuple[str, ...] = ("migrate.after-copy", "migrate.after-convert", "migrate.after-placement")
"""A migration; between the last two lie those of a placement."""

CONVERSION_POINTS: tuple[str, ...] = (
    "conversion.before-database",
    "conversion.after-database",
    "conversion.after-files",
)
"""The conversion of a copy of a task's directory to another release; the first two once a database."""

REPAIR_POINTS: tuple[str, ...] = ("repair.after-repair", "repair.after-rebuild")
"""A repair; those of a placement lie before ``after-repair``, those of a restore before ``after-rebuild``."""

PROMOTION_POINTS: tuple[str, ...] = ("promote.during-copy", "promote.after-copy", "promote.after-placement")
"""Points of a promotion, in the order in which they are reached; those of the placement come before the last."""

GLOBAL_POINTS: tuple[str, ...] = (
    "global.before-aside",
    "global.after-aside",
    "global.before-read",
    "global.after-read",
    "global.after-ingest",
    "global.after-commit",
    "global.before-place",
    "global.after-place",
    "global.before-topics",
    "global.before-kept",
    "global.after-kept",
    "global.recovered",
)
"""A runtime that builds a global store anew; the middle ones once a round, also while it follows its topic."""

STANDBY_POINTS: tuple[str, ...] = (
    "standby.before-ingest",
    "standby.after-ingest",
    "standby.between-segments",
    "standby.before-expiry",
)
"""A standby task that applies runs to one of its stores; the third only where the store has several segments."""

RESET_POINTS: tuple[str, ...] = ("standby.before-reset", "standby.after-reset")
"""A standby task that makes a store anew; after the second what was known of its changelog is forgotten."""

ACTIVE_POINTS: tuple[str, ...] = (
    "active.before-kafka-commit",
    "active.after-kafka-commit",
    "active.between-stores",
    "active.after-commit",
)
"""A commit of an active task; the third before each of its stores but the first."""

BASE_POINTS: tuple[str, ...] = ("base.before-rename", "base.after-rename", "base.during-discard")
"""A task of a snapshot that becomes the base of a new copy; the last one where that is given up."""

STARTUP_POINTS: tuple[str, ...] = (
    "startup.before-aside",
    "startup.after-aside",
    "startup.after-open",
    "startup.after-close",
)
"""The start on the task directories that are there: each one that is moved aside, opened, or closed again."""

CLEANING_POINTS: tuple[str, ...] = ("cleaning.before-aside", "cleaning.after-aside", "cleaning.after-delete")
"""The deletion of task directories that nobody owns, for each one."""

FAULT_POINTS: tuple[str, ...] = (
    *PLACEMENT_POINTS,
    *RESTORE_POINTS,
    *RESTORE_PUBLISH_POINTS,
    *PUBLISH_POINTS,
    *CHECKPOINT_POINTS,
    *RECONCILE_POINTS,
    *COMPACTION_POINTS,
    *COLLECTION_POINTS,
    *COPY_POINTS,
    *REPLICA_PROMOTION_POINTS,
    *KEY_ROTATION_POINTS,
    *FETCH_POINTS,
    *BACKUP_POINTS,
    *CHANGE_POINTS,
    *MIGRATE_POINTS,
    *REPAIR_POINTS,
    *PROMOTION_POINTS,
    *CONVERSION_POINTS,
    *GLOBAL_POINTS,
    *STANDBY_POINTS,
    *RESET_POINTS,
    *ACTIVE_POINTS,
    *BASE_POINTS,
    *STARTUP_POINTS,
    *CLEANING_POINTS,
)
"""Every fault point there is."""

_REGISTERED = frozenset(FAULT_POINTS)


class FaultInjected(RuntimeError):
    """Raised at a fault point by a test; never in production."""


class FaultPoints:
    """Does nothing at every point: what production injects."""

    def reach(self, point: str) -> None:
        """Tell that ``point`` was reached. Raises ``ValueError`` for a name that is not in :data:`FAULT_POINTS`."""
        if point not in _REGISTERED:
            raise ValueError(f"fault point {point!r} is not registered in statecore.faults.FAULT_POINTS")


NO_FAULTS = FaultPoints()
"""The default of every function that takes fault points."""


class InjectedFault(FaultPoints):
    """Dies, or raises, the n-th time one point is reached."""

    def __init__(self, point: str, action: str = "raise", nth: int = 1) -> None:
        super().reach(point)
        if action not in ("kill", "raise") or nth < 1:
            raise ValueError(f"unknown fault {point}:{action}:{nth}")
        self.point, self.action, self.nth = point, action, nth
        self.reached = 0

    def reach(self, point: str) -> None:
        """Count the point, and die or raise when it is the chosen one."""
        super().reach(point)
        if point != self.point:
            return
        self.reached += 1
        if self.reached != self.nth:
            return
        if self.action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise FaultInjected(f"fault injected at {point} (time {self.nth})")


def fault_points_from_environment(environ: Mapping[str, str] = os.environ) -> FaultPoints:
    """The fault points that the environment asks for; :data:`NO_FAULTS` without ``STATECORE_FAULT``."""
    wanted = environ.get(VARIABLE, "")
    if not wanted:
        return NO_FAULTS
    point, _, rest = wanted.partition(":")
    action, _, nth = rest.partition(":")
    try:
        return InjectedFault(point, action or "kill", int(nth or 1))
    except ValueError as error:
        raise Invalid(
            f"{VARIABLE}={wanted} asks for a fault that does not exist: {error}.",
            code="fault-unknown",
            action=f"Unset {VARIABLE}; it is for tests.",
        ) from error
