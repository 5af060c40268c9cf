"""What lies in ``<application>/.statecore``: each name, what it means, and who takes it away.

Jobs sweep by this table (:mod:`statecore.statedir.apply`), ``statecore info`` tells people of it, and the doctor knows
by it what an interrupted job has left.
"""

from __future__ import annotations

from dataclasses import dataclass

PLANS = "plans"
JOURNAL = "journal.json"
RECORD = "placed.json"

SET_ASIDE = "set-aside"
"""Old directories that the application replaced itself while a placement was interrupted."""

REPLACED = "replaced"
"""What placements have replaced and somebody may miss, by placement."""

FETCHED = "fetched"

STANDBY = "standby"
"""What standby tasks have in the making, and what they know of the changelogs that they follow, by task."""

CORRUPT = "corrupt"
"""Task directories that were found damaged at a start under exactly-once, by task and time."""

STALE = "stale"
"""Stores of warm copies, and global stores, as they were before they were made anew: their topics do not tell of all
rows any more. By task (``global`` too) and time."""

CLEANED = "cleaned"
"""Task directories that nobody owns any more, on their way to be deleted."""

UNOWNED = "unowned"
"""Task directories that nobody owned and that went though nobody else may have had their state, by task and time."""

STAGING_PREFIX = "placement-"
"""How the staging directories of placements begin."""

SCRATCH_PREFIX = "snapshot-"
"""How the directories begin in which a snapshot has second names of files."""

GLOBAL_NEW = "global-new"
"""Global stores that a runtime is building."""

GLOBAL_OLD = "global-old"
"""Global stores that a runtime has set aside, whole but old, until they are built anew."""

GLOBAL_UNUSABLE = "global-unusable"
"""Those that were damaged or not closed."""

GLOBAL_TOPICS = "global-topics.json"
"""The ids of the topics that global stores are built of."""


@dataclass(frozen=True)
class WorkEntry:
    """Something in the work directory.

    Attributes:
        name: its name, or what that begins with.
        meaning: what it is, and when it goes.
        is_prefix: whether names only begin so.
        stays: whether no sweep deletes it, whatever its age; what lies in it may be swept by itself.
        is_expected: whether it is there also where no job was interrupted.
        is_bookkeeping: whether jobs read it to know what was done; nobody has to be told of it.
    """

    name: str
    meaning: str
    is_prefix: bool = False
    stays: bool = False
    is_expected: bool = False
    is_bookkeeping: bool = False


ENTRIES = (
    WorkEntry(
        PLANS,
        "plans, tries and reports of jobs; the newest 200 files, and those of 30 days, stay",
        stays=True,
        is_expected=True,
        is_bookkeeping=True,
    ),
    WorkEntry(
        JOURNAL, "the placement that is under way, or was interrupted; the next job settles it", stays=True,
        is_bookkeeping=True,
    ),
    WorkEntry(RECORD, "the last placement; the next replaces it", stays=True, is_expected=True, is_bookkeeping=True),
    WorkEntry(STAGING_PREFIX, "staging of a placement; the next job settles and sweeps it", is_prefix=True),
    WorkEntry(
        REPLACED,
        "what migrations and repairs have replaced; the first job after a week deletes it",
        stays=True,
        is_expected=True,
    ),
    WorkEntry(
        FETCHED,
        "files that a fetch has brought; the next one goes on with them, and sweeps them when a day old",
        is_expected=True,
    ),
    WorkEntry(
        STANDBY,
        "what standby tasks know of the changelogs that they follow, and what they have in the making",
        stays=True,
        is_expected=True,
        is_bookkeeping=True,
    ),
    WorkEntry(
        CORRUPT,
        "task directories that were damaged at a start; the first start after a week deletes them",
        stays=True,
        is_expected=True,
    ),
    WorkEntry(
        STALE,
        "stores of warm copies, and global stores, as they were before they were made anew; the first standby, or "
        "runtime of global stores, after a week deletes them",
        stays=True,
        is_expected=True,
    ),
    WorkEntry(
        CLEANED, "task directories that nobody owned; the cleaner that moved them, or the next one, deletes them",
        stays=True, is_expected=True,
    ),
    WorkEntry(
        UNOWNED,
        "task directories that nobody owned, and of which there may be no other copy; the first standby or cleaning "
        "after a week deletes them",
        stays=True,
        is_expected=True,
    ),
    WorkEntry(
        SET_ASIDE, "old task directories that the application had replaced itself; it can be deleted", stays=True
    ),
    WorkEntry(
        SCRATCH_PREFIX,
        "second names of the files of a snapshot that was killed; the next one deletes them",
        is_prefix=True,
    ),
    WorkEntry(GLOBAL_NEW, "global stores that a runtime builds; its next start begins them again", is_expected=True),
    WorkEntry(
        GLOBAL_OLD,
        f"global stores that a runtime has set aside; it moves them to {STALE} when they are built anew",
        stays=True,
        is_expected=True,
    ),
    WorkEntry(
        GLOBAL_UNUSABLE,
        f"damaged global stores that a runtime has set aside; it moves them to {STALE} when they are built anew",
        stays=True,
        is_expected=True,
    ),
    WorkEntry(
        GLOBAL_TOPICS,
        "the ids of the topics that global stores are built of",
        stays=True,
        is_expected=True,
        is_bookkeeping=True,
    ),
)  # fmt: skip
"""Every name that has a meaning of its own."""

STAGED = WorkEntry("", "staging of a restore or a fetch; the next one sweeps it when it is a day old", is_prefix=True)
"""What any other name is: that of a plan."""


def entry_of(name: str) -> WorkEntry:
    """What something in the work directory is, by its name."""
    return next((one for one in ENTRIES if name == one.name or (one.is_prefix and name.startswith(one.name))), STAGED)
