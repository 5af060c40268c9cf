"""Entries of ``<application>/.statecore``: name, meaning, and which job deletes it.

Used by the sweep (:mod:`statecore.statedir.placement`), by ``statecore info``, and by the doctor to recognize what an
interrupted job has left.
"""

from __future__ import annotations

from dataclasses import dataclass

PLANS = "plans"
JOURNAL = "journal.json"
RECORD = "placed.json"

SET_ASIDE = "set-aside"
"""Task directories as they were before a placement that was interrupted, which the application has replaced since."""

REPLACED = "replaced"
"""Kept files of task directories that placements have replaced, by placement."""

FETCHED = "fetched"

STANDBY = "standby"
"""Stores that standby tasks are building, and the state of the changelogs that they follow, by task."""

STANDBY_LOGS = "logs.json"
"""The state of a standby task's changelogs, in its directory."""

CORRUPT = "corrupt"
"""Task directories that were found damaged at a start under exactly-once, by task and time."""

STALE = "stale"
"""Stores of standby tasks, and global stores, as they were before they were rebuilt because their topics no longer
have all rows; expired segments of standby tasks. By task (``global`` too) and time.
"""

CLEANED = "cleaned"
"""Task directories without an owner that are being deleted."""

UNOWNED = "unowned"
"""Task directories without an owner whose state may have no other copy, by task and time."""

STAGING_PREFIX = "placement-"
"""Prefix of the staging directories of placements."""

BACKUP_LINKS_PREFIX = "snapshot-"
"""Prefix of the directories with the hard links of a backup."""

GLOBAL_NEW = "global-new"
"""Global stores that a runtime is building."""

GLOBAL_OLD = "global-old"
"""Complete but old global stores that a runtime has set aside until they are rebuilt."""

GLOBAL_UNUSABLE = "global-unusable"
"""Global stores that were damaged or not closed."""

GLOBAL_TOPICS = "global-topics.json"
"""Ids of the topics that global stores are built of."""


@dataclass(frozen=True)
class WorkEntry:
    """An entry of the work directory.

    Attributes:
        name: its name, or a prefix of it.
        meaning: what it is, and when it is deleted.
        is_prefix: whether ``name`` is a prefix.
        is_kept: whether no sweep deletes it, whatever its age; its contents may be swept separately.
        is_expected: whether it exists without an interrupted job, too.
        is_bookkeeping: whether it is only for jobs, and not shown to people.
    """

    name: str
    meaning: str
    is_prefix: bool = False
    is_kept: bool = False
    is_expected: bool = False
    is_bookkeeping: bool = False


ENTRIES = (
    WorkEntry(
        PLANS,
        "plans, attempts and reports of jobs; the newest 200 files, and those of 30 days, stay",
        is_kept=True,
        is_expected=True,
        is_bookkeeping=True,
    ),
    WorkEntry(
        JOURNAL, "the placement that is in progress, or was interrupted; the next job finishes it", is_kept=True,
        is_bookkeeping=True,
    ),
    WorkEntry(RECORD, "the last placement; the next replaces it", is_kept=True, is_expected=True, is_bookkeeping=True),
    WorkEntry(STAGING_PREFIX, "staging of a placement; the next job finishes and deletes it", is_prefix=True),
    WorkEntry(
        REPLACED,
        "task directories that migrations, repairs and promotions have replaced; the first job after a week deletes "
        "them",
        is_kept=True,
        is_expected=True,
    ),
    WorkEntry(
        FETCHED,
        "downloaded files of a fetch; the next fetch reuses them, and the first job after a day deletes them",
        is_expected=True,
    ),
    WorkEntry(
        STANDBY,
        "changelog state of standby tasks, and stores that they are building",
        is_kept=True,
        is_expected=True,
        is_bookkeeping=True,
    ),
    WorkEntry(
        CORRUPT,
        "task directories that were damaged at a start; the first start after a week deletes them",
        is_kept=True,
        is_expected=True,
    ),
    WorkEntry(
        STALE,
        "stores of standby tasks, and global stores, as they were before they were rebuilt; the first standby, or "
        "runtime of global stores, after a week deletes them",
        is_kept=True,
        is_expected=True,
    ),
    WorkEntry(
        CLEANED, "task directories without an owner; the cleaner that moved them, or the next one, deletes them",
        is_kept=True, is_expected=True,
    ),
    WorkEntry(
        UNOWNED,
        "task directories without an owner whose state may have no other copy; the first standby or cleaning "
        "after a week deletes them",
        is_kept=True,
        is_expected=True,
    ),
    WorkEntry(
        SET_ASIDE, "old task directories that the application had replaced itself; it can be deleted", is_kept=True
    ),
    WorkEntry(
        BACKUP_LINKS_PREFIX,
        "hard links of a backup; those of a killed one are deleted by the next backup, or the first job after a day",
        is_prefix=True,
    ),
    WorkEntry(GLOBAL_NEW, "global stores that a runtime builds; its next start builds them again", is_expected=True),
    WorkEntry(
        GLOBAL_OLD,
        f"global stores that a runtime has set aside; it moves them to {STALE} when they are rebuilt",
        is_kept=True,
        is_expected=True,
    ),
    WorkEntry(
        GLOBAL_UNUSABLE,
        f"damaged global stores that a runtime has set aside; it moves them to {STALE} when they are rebuilt",
        is_kept=True,
        is_expected=True,
    ),
    WorkEntry(
        GLOBAL_TOPICS,
        "the ids of the topics that global stores are built of",
        is_kept=True,
        is_expected=True,
        is_bookkeeping=True,
    ),
)  # fmt: skip
"""Every name with a fixed meaning."""

STAGED = WorkEntry("", "staging of a restore or a fetch; the first job after a day deletes it", is_prefix=True)
"""Any other name is that of a plan."""


def entry_of(name: str) -> WorkEntry:
    """The entry for a name in the work directory."""
    return next((one for one in ENTRIES if name == one.name or (one.is_prefix and name.startswith(one.name))), STAGED)
