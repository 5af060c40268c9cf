"""Catalog of all findings: code, severity, meaning and repair.

A code never changes its meaning. ``docs/findings/<code>.md`` is the page of each, with observations of real Kafka
Streams. Severity may depend on the application's guarantee; the catalog has the greater one, and a
:class:`statecore.doctor.findings.Finding` its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType


class Severity(Enum):
    """Severity of a finding, by what happens to the application's state if nothing is done."""

    NOTE = "note"
    """No effect; worth knowing."""
    WARNING = "warning"
    """Answers stay right, at a cost: a restore, time, disk space."""
    ERROR = "error"
    """The application does not start, or throws state away and restores it."""
    LOSS = "loss"
    """The application starts and answers wrongly, without an error; or the only copy of something is in danger."""

    @property
    def exit_code(self) -> int:
        """0 for a note, 20 to 22 for the others."""
        return {"note": 0, "warning": 20, "error": 21, "loss": 22}[self.value]

    @property
    def rank(self) -> int:
        """Position in order of severity; greater is worse."""
        return list(Severity).index(self)


class Repair(Enum):
    """What ``statecore repair`` does about a finding."""

    LOWER_OFFSETS = "lower the offsets of all segments to the smallest"
    CREATE_SEGMENT = "create a segment that keeps the offset"
    SET_STATUS = "set the status to closed"
    MERGE_CHECKPOINT = "take the offsets of the file into the stores and move the file aside"
    MOVE_ASIDE = "move the file aside"
    DROP_ENTRIES = "take the entries of no store out of the file"
    REBUILD = "rebuild the store from its changelog or from a snapshot, and keep the others"
    DROP_FAMILY = "drop the column family"
    GIVE = "give files their owner and modes"
    TOUCH = "set the time of the directory to now"


@dataclass(frozen=True)
class FindingKind:
    """One kind of finding.

    Attributes:
        severity: the worst case.
        title: what it is, in a few words.
        means: its effect in practice.
        remedy: what to do, in the imperative.
        repairs: possible repairs; empty if only a person can act.
        needs: required for detection: ``brokers``, ``spec``, a ``scan`` of all rows; empty for nothing.
    """

    code: str
    severity: Severity
    title: str
    means: str
    remedy: str
    repairs: tuple[Repair, ...] = ()
    needs: str = ""


def _kinds() -> tuple[FindingKind, ...]:
    note, warning, error, loss = Severity
    return (
        FindingKind(
            "store-not-closed",
            error,
            "a store was not closed",
            "Its process died. Under exactly-once the next start deletes the whole task and restores it; where an open "
            "segment is after a closed one, it ends in an error and deletes every task. At-least-once it restores what "
            "came after the last flush. With transactional stores (4.4) an exactly-once start may never end.",
            "Rebuild the store under exactly-once; at-least-once nothing has to be done.",
            (Repair.REBUILD,),
        ),
        FindingKind(
            "offset-missing",
            loss,
            "a store has no offset",
            "Under exactly-once the next start deletes the whole task and restores it; at-least-once it restores the "
            "store from the start of its changelog, over the existing rows, and keys whose deletes the changelog no "
            "longer has survive. So they do in a global store, and in transactional stores (4.4), under either "
            "guarantee.",
            "Rebuild the store.",
            (Repair.REBUILD,),
        ),
        FindingKind(
            "offset-unknown",
            loss,
            "a store with rows says that its offset is unknown (-4), or -1",
            "Under either guarantee the store is restored from the start of its changelog, over the existing rows: "
            "keys whose deletes the changelog no longer has survive, and rows of a versioned store are changed.",
            "Rebuild the store if it has rows; an empty one is right as it is.",
            (Repair.REBUILD,),
        ),
        FindingKind(
            "offset-invalid",
            error,
            "a store has a negative offset that stands for nothing",
            "Every start of the application fails, under either guarantee: Kafka Streams knows no negative offset in a "
            "store but -4, which says that the offset is unknown.",
            "Rebuild the store.",
            (Repair.REBUILD,),
        ),
        FindingKind(
            "offset-foreign",
            loss,
            "a store has the offset of the changelog of another store, task or application",
            "The directory is not this store's: two were exchanged, or one was copied. Kafka Streams finds no offset "
            "of the store's own: at-least-once it restores it from the start, over rows of another store, and answers "
            "with both; under exactly-once it deletes the task and restores it, except for global stores and tasks "
            "with transactional stores (4.4).",
            "Put the directories back where they belong, or rebuild the store. For a global store check first that the "
            "spec names its topic; if it does, move the directory of the store away.",
            (Repair.REBUILD,),
        ),
        FindingKind(
            "global-offset-unknown",
            error,
            "a global store says that its offset is unknown (-4), or another negative one",
            "Every start of the application fails: Kafka Streams seeks to the offset, which must not be negative.",
            "Rebuild the global store.",
            (Repair.REBUILD,),
        ),
        FindingKind(
            "global-store-not-closed",
            error,
            "a global store was not closed",
            "Under exactly-once every start of the application fails (KAFKA-21034): global state is not deleted as a "
            "task's is. At-least-once it is ignored.",
            "Set its status: a global store continues from its offset, so records that it lacks are read.",
            (Repair.SET_STATUS,),
        ),
        FindingKind(
            "segments-disagree",
            loss,
            "the segments of a store are at different offsets",
            "Kafka Streams uses the offset of the newest segment and restores what comes after it. Updates that only "
            "an older segment lacks are lost for ever, silently.",
            "Lower all segments to the smallest offset (at-least-once), or rebuild the store (exactly-once).",
            (Repair.LOWER_OFFSETS, Repair.REBUILD),
        ),
        FindingKind(
            "segment-missing",
            error,
            "a store of windows or sessions has no segment",
            "There is no place for an offset. Under exactly-once every start deletes the whole task and restores "
            "it, also after a clean close; with transactional stores (4.4) it restores only this store.",
            "Create a segment that keeps the offset.",
            (Repair.CREATE_SEGMENT,),
        ),
        FindingKind(
            "segment-stray",
            loss,
            "an entry among the segments of a store is not a segment",
            "4.3 and later fail at every start. 4.2 and older open none of the segments, without an error, and answer "
            "as if they had no rows. A database that is no segment has rows that no segment has.",
            "Move the entry out of the store's directory; rebuild the store if it is a database.",
            (Repair.MOVE_ASIDE, Repair.REBUILD),
        ),
        FindingKind(
            "segment-misplaced",
            loss,
            "a segment has the name of another time",
            "It was moved or copied, or the retention of the store was changed. A query by time reads only the segment "
            "of that time: it does not find rows in another one, without an error. They also expire at another time.",
            "Give the directory its name back, or rebuild the store. If all segments have this finding, correct the "
            "retention in the spec.",
            (Repair.REBUILD,),
        ),
        FindingKind(
            "checkpoint-behind",
            loss,
            ".checkpoint says a smaller offset than the store",
            "The file wins: the records between the two offsets are restored again. In the buffer of a join with a "
            "grace period they then have keys under which the join never finds them, which is a loss.",
            "Move the file aside; rebuild a grace buffer whose own file it is.",
            (Repair.MOVE_ASIDE, Repair.REBUILD),
        ),
        FindingKind(
            "checkpoint-ahead",
            loss,
            ".checkpoint says a greater offset than the store",
            "The file wins: the records between the two offsets are never restored, without a warning.",
            "Move the file aside; the offset in the store is that of its rows.",
            (Repair.MOVE_ASIDE, Repair.REBUILD),
        ),
        FindingKind(
            "rows-after-checkpoint",
            loss,
            "rows were flushed after .checkpoint was written",
            "The application was killed on 3.9 or 4.2. Under exactly-once the rows may be of a transaction that was "
            "never committed: every release trusts the file, processes their input again, and applies it twice. "
            "At-least-once later records are restored again.",
            "Under exactly-once run statecore migrate, which has the task restored, or rebuild its stores, before the "
            "application starts. At-least-once nothing has to be done.",
            (Repair.REBUILD,),
        ),
        FindingKind(
            "checkpoint-stray",
            loss,
            ".checkpoint has an offset of no store in its directory",
            "If the application has the store, its rows are missing, and the file is trusted: nothing is restored, "
            "and no error is reported. If the application has no such store, 4.3 and later drop the entry, and in "
            "global/ 4.2 and older fail at every start.",
            "Check whether the directory is this application's. If stores keep their offsets inside, move the file "
            "aside; if they do not, remove the entry from it.",
            (Repair.MOVE_ASIDE, Repair.DROP_ENTRIES, Repair.REBUILD),
        ),
        FindingKind(
            "checkpoint-unreadable",
            error,
            "an offset file cannot be read",
            "Every start of the application fails; of global/.checkpoint in 4.2 only the first one, which deletes it. "
            "But if only a partition is named twice, and line 2 counts it once, the last line wins, and this is a "
            "warning.",
            "If this user may not read it, run this as the one that may. If it is damaged, move it aside if the "
            "stores keep their offsets themselves, else rebuild the task.",
            (Repair.MOVE_ASIDE, Repair.REBUILD),
        ),
        FindingKind(
            "position-leftover",
            note,
            "a .position file of an older release is left",
            "Kafka Streams 4.3 and later merge it into the store's position at every start, and never delete it.",
            "Nothing; statecore migrate merges it into the store and moves it aside.",
            (Repair.MERGE_CHECKPOINT,),
        ),
        FindingKind(
            "older-release",
            error,
            "written by Kafka Streams 4.2 or older",
            "4.3 and later read the offsets of a directory that was closed cleanly. They lose those of segmented "
            "stores without a segment, read none of stores that never had a record, and under "
            "exactly-once delete the tasks of both, unless stores are transactional.",
            "Run statecore migrate --to the release, 4.3 or 4.4, before the application starts on it. It does "
            "not change stores that have no offset: rebuild those, or have Kafka Streams restore them.",
            (Repair.REBUILD,),
        ),
        FindingKind(
            "half-migrated",
            error,
            "stores of one task are of different releases",
            "No release opens all of them: 4.2 fails at those with offsets inside, and later ones find no offset of "
            "the others unless .checkpoint has it.",
            "Run statecore migrate to the release that is to open the directory.",
        ),
        FindingKind(
            "release-cannot-open",
            error,
            "the release that was named cannot open the directory",
            "The application fails at start, or silently opens segmented stores as empty ones (4.2 and older).",
            "Run statecore migrate --to that release.",
        ),
        FindingKind(
            "column-family-unknown",
            error,
            "a database has a column family that its kind does not have",
            "Every start of the application fails.",
            "Check the kind of the store; if the family is another tool's and empty, drop it, else rebuild the store.",
            (Repair.DROP_FAMILY, Repair.REBUILD),
        ),
        FindingKind(
            "column-family-missing",
            loss,
            "a database lacks the column family of its rows",
            "Kafka Streams creates it empty and trusts the offset: nothing is restored and every answer is empty.",
            "Rebuild the store.",
            (Repair.REBUILD,),
        ),
        FindingKind(
            "older-rows",
            note,
            "rows in the column family of an older format",
            "The application reads both, and converts rows that it touches.",
            "Nothing.",
        ),
        FindingKind(
            "older-rows-misread",
            loss,
            "rows of an older format that Kafka Streams misreads",
            "In a store of emit-final sessions that now keeps headers, each older value is answered with a byte 00 "
            "before it. If two older formats have rows in a store with headers, the application does not start.",
            "Rebuild the store.",
            (Repair.REBUILD,),
        ),
        FindingKind(
            "block-corrupt",
            loss,
            "blocks of a database do not match their checksums",
            "Reads of their keys fail when they come, perhaps weeks later, and the application with them.",
            "Rebuild the store, and check the disk.",
            (Repair.REBUILD,),
            "scan",
        ),
        FindingKind(
            "rows-malformed",
            loss,
            "rows are too short for the kind of their store",
            "Kafka Streams did not write them. It fails when it reads such a value, perhaps weeks later, and finds no "
            "row by such a key. Without a scan only the first rows are checked.",
            "Check the kind of the store in the spec, then rebuild the store.",
            (Repair.REBUILD,),
        ),
        FindingKind(
            "file-missing",
            error,
            "a database names a file that does not exist",
            "Every start of the application fails.",
            "Rebuild the store.",
            (Repair.REBUILD,),
        ),
        FindingKind(
            "blob-damaged",
            loss,
            "a blob file is missing or has another length",
            "The application starts: RocksDB reads a blob file only when it reads a value from it. A query of many "
            "rows then ends without an error and without the rows behind it; a query of one row fails.",
            "Rebuild the store before the application starts.",
            (Repair.REBUILD,),
        ),
        FindingKind(
            "wrong-file-type",
            error,
            "a directory, a named pipe or a broken link in the place of a file, or a file in that of a directory",
            "Every start of the application fails; with a named pipe it may never end.",
            "If rows belong into its place, rebuild the store; else move it aside: Kafka Streams or RocksDB creates "
            "what is missing.",
            (Repair.MOVE_ASIDE, Repair.REBUILD),
        ),
        FindingKind(
            "database-unreadable",
            error,
            "a database cannot be opened",
            "Every start of the application fails, or never ends; 4.2 and older silently recreate a segment empty.",
            "Rebuild the store.",
            (Repair.REBUILD,),
        ),
        FindingKind(
            "not-readable-here",
            warning,
            "a database needs RocksDB options that statecore lacks",
            "If its application opens it with options of its own, nothing is wrong with the database. If none of its "
            "SST files exists and the application keeps them nowhere else, they were deleted, and every start of "
            "the application fails. Its content is not checked here, and it is neither published, nor advanced, "
            "nor repaired.",
            "Keep the database if an option explains it: see which one it is, and what can be done without it. "
            "If its SST files are gone and the application sets neither db_paths nor cf_paths, move the store's "
            "directory away and restore the store.",
        ),
        FindingKind(
            "database-unseen",
            error,
            "a database could not be inspected",
            "Its state is unknown: this process lacks permissions or open files, the disk did not answer, or its "
            "files changed at every attempt.",
            "Run this as the user that the application runs as, and again; check the kernel's log if the disk failed.",
        ),
        FindingKind(
            "check-failed",
            error,
            "a check of a store failed",
            "It is a defect of this program. What the check looks for in the store is unknown; other findings hold.",
            "Report it with the trace, which --json has in evidence.",
        ),
        FindingKind(
            "manifest-truncated",
            loss,
            "a database does not name files in its directory",
            "Its MANIFEST lost its end. RocksDB silently opens it at an older or an empty state, and "
            "deletes the files that it does not name.",
            "Rebuild the store before the application starts.",
            (Repair.REBUILD,),
        ),
        FindingKind(
            "log-foreign",
            loss,
            "a database has the log of another one",
            "RocksDB replays a log without asking whose it is: the next start mixes rows of another database into the "
            "store, and counts them as its own.",
            "Rebuild the store before the application starts.",
            (Repair.REBUILD,),
        ),
        FindingKind(
            "current-missing",
            loss,
            "a directory has a database's files and no CURRENT",
            "RocksDB cannot open the store: it finds no database there.",
            "Rebuild the store.",
            (Repair.REBUILD,),
        ),
        FindingKind(
            "files-set-aside",
            warning,
            "files of a database were moved to lost/",
            "Neither Kafka Streams nor RocksDB reads them, and rows in them may be missing in the store. SST files "
            "alone are those that its MANIFEST did not name when this library opened it. Beside a MANIFEST or a log "
            "they are those that RocksDB's repair (ldb repair) could not read; after it deleted rows may be back, too.",
            "Compare the store with its changelog (statecore diff); rebuild it if rows differ, else delete lost/.",
            (Repair.REBUILD,),
        ),
        FindingKind(
            "kind-mismatch",
            loss,
            "a store is not of the kind that is declared",
            "The application fails at start, or reads the rows wrongly: a timestamped store built as a plain one is "
            "read with the time -1, without an error.",
            "Correct the spec, or rebuild the store.",
            (Repair.REBUILD,),
            "spec",
        ),
        FindingKind(
            "grace-buffer-miskeyed",
            loss,
            "Kafka Streams restored a grace buffer wrongly, or will",
            "Kafka Streams gives every row of the buffer of a join with a grace period (withGracePeriod) a wrong key "
            "when it restores it, and finds none of them again: the join silently never emits these records. "
            "Later records may be joined without waiting for the grace period. It restores the buffer wherever it "
            "wipes its task, and at every start with records behind the buffer's offset: after a crash, or in an older "
            "copy.",
            "Rebuild the store: its changelog has these records, and the join emits them after that.",
            (Repair.REBUILD,),
        ),
        FindingKind(
            "store-unlogged",
            loss,
            "a store that has no changelog",
            "Kafka Streams needs no offset of it and restores nothing into it: its rows have no other copy. Under "
            "exactly-once they are lost if the next start deletes their task.",
            "Keep copies of its directory, which statecore backup leaves out; before a start that would delete the "
            "task, copy the store first.",
        ),
        FindingKind(
            "store-unread",
            note,
            "a store that is not kept in RocksDB",
            "The application uses a format of its own. Its rows are neither inspected nor rebuilt; its offset is "
            "in .checkpoint_<store>.",
            "Nothing.",
        ),
        FindingKind(
            "store-undeclared",
            warning,
            "a store has a directory and is not declared",
            "If the application does not have it either, it is ignored and takes disk space.",
            "Correct the spec; or, if the application no longer has the store, delete its directory.",
            (),
            "spec",
        ),
        FindingKind(
            "store-absent",
            error,
            "a declared store has no directory",
            "The application creates it and restores it; under exactly-once the next start deletes the whole task, "
            "unless stores are transactional (4.4).",
            "Rebuild the store, or correct the spec.",
            (Repair.REBUILD,),
            "spec",
        ),
        FindingKind(
            "kind-undecided",
            note,
            "the spec leaves kinds undecided",
            "Such a store is checked by what its directory shows. One without a directory, such as a store in memory, "
            "is not checked; and no restore includes it.",
            "Replace each ? by the kind that the application declares: in-memory for a store in memory.",
            (),
            "spec",
        ),
        FindingKind(
            "transactional-undeclared",
            warning,
            "stores are transactional, and the spec does not say so",
            "Doctor, backup and promote go by the spec: they report that an exactly-once start wipes a task, which "
            "it does not with transactional stores (4.4), or that it repairs what it does not.",
            "Write transactional_state_stores: true into the spec if the application sets "
            "enable.transactional.statestores, and run this again.",
            (),
            "spec",
        ),
        FindingKind(
            "task-undeclared",
            error,
            "a directory of a task whose subtopology is not declared",
            "Kafka Streams ignores it, and restores the stores where it expects them. In an application with global "
            "stores every start of 4.3 or later fails instead, if the topology has no such subtopology.",
            "Check the numbers of the subtopologies in the spec against Topology.describe().",
            (),
            "spec",
        ),
        FindingKind(
            "task-misplaced",
            error,
            "a directory named like a task is within a task",
            "Kafka Streams opens none of its stores. If the task around it lacks stores, under exactly-once the next "
            "start deletes that task, and this directory with it; at-least-once it restores these stores.",
            "Move it to its place while the application is stopped, if no other directory with stores is there; else "
            "away.",
        ),
        FindingKind(
            "task-name-invalid",
            error,
            "a directory is named like a task, with too great a number",
            "Every start of the application fails: Kafka Streams cannot parse the name.",
            "Move it away while the application is stopped: no task has such a number.",
        ),
        FindingKind(
            "cleaning-deletes",
            warning,
            "a directory is so old that cleaning deletes it",
            "With state.cleanup.dir.max.age.ms the next start deletes it before reading anything: a copy that "
            "kept its times can vanish.",
            "Set its time to now (touch).",
            (Repair.TOUCH,),
        ),
        FindingKind(
            "foreign-file",
            note,
            "files of other tools",
            "Kafka Streams ignores them.",
            "Delete them if they are not needed. Look into directories before: they may have a copy of the state.",
            (Repair.MOVE_ASIDE,),
        ),
        FindingKind(
            "rights",
            error,
            "files that the application cannot use",
            "The application fails at start, or at its first write.",
            "Give them the owner and the modes of the application's directory.",
            (Repair.GIVE,),
        ),
        FindingKind(
            "work-unfinished",
            warning,
            "a job of statecore was interrupted here",
            "Every task is complete, either old or new; files in .statecore take disk space.",
            "Resume the job with its request id; statecore info --state-dir DIR says how. The next job completes or "
            "reverts an interrupted placement first; the next restore or fetch deletes staged files of others when "
            "they are a day old.",
        ),
        FindingKind(
            "offset-past-end",
            loss,
            "an offset past the end of its changelog",
            "The log was recreated or truncated. Under exactly-once the next start deletes the task and restores what "
            "the log has, which may be nothing; at-least-once it restores that over the existing rows.",
            "Find out what happened to the topic, and keep a copy of the directory; then rebuild the store.",
            (Repair.REBUILD, Repair.MOVE_ASIDE),
            "brokers",
        ),
        FindingKind(
            "offset-before-start",
            loss,
            "an offset before the start of its changelog",
            "Records in between are gone. Under exactly-once the next start deletes the task and restores what is "
            "left; at-least-once it restores that over the existing rows, and keys that were deleted in between "
            "survive.",
            "Rebuild the store.",
            (Repair.REBUILD, Repair.MOVE_ASIDE),
            "brokers",
        ),
        FindingKind(
            "topic-missing",
            loss,
            "the topic of a store does not exist",
            "The rows of the store have no other copy. The application creates an empty changelog; under exactly-once "
            "it then deletes the rows, at-least-once it keeps them and no other instance will have them. It creates "
            "no source topic and no topic of a global store: without one it does not start, and the rows stay.",
            "Keep a copy of the directory before the application starts (statecore backup --offline). Check the "
            "application id and the cluster; find out who deleted the topic.",
            (),
            "brokers",
        ),
        FindingKind(
            "topic-recreated",
            loss,
            "the changelog is not the one that the store was built from",
            "The offset fits by chance: the store keeps rows that no log has, and misses those before the offset.",
            "Rebuild the store.",
            (Repair.REBUILD,),
            "brokers",
        ),
        FindingKind(
            "rows-differ",
            loss,
            "rows differ from the changelog at the store's offset",
            "Rows were changed or lost in the store, or in the log. Kafka Streams answers with what the store has, and "
            "restores nothing. Only a sample was compared.",
            "Run statecore diff, which shows every row that differs. If the log is right, rebuild the store.",
            (Repair.REBUILD,),
            "brokers",
        ),
        FindingKind(
            "stale",
            loss,
            "the store is older than the deletes that its changelog keeps",
            "Deletes behind its offset may have been compacted away: Kafka Streams restores the rest of the log, and "
            "deleted keys survive.",
            "Rebuild the store, or advance it, which proves whether that has happened.",
            (Repair.REBUILD, Repair.MOVE_ASIDE),
            "brokers",
        ),
        FindingKind(
            "partition-unknown",
            error,
            "a task of a partition that the changelog does not have",
            "The application fails at start, or never uses the task. Such an offset in a global store is ignored, and "
            "rows of that partition stay: a warning.",
            "Check the application id, and who has changed the number of partitions.",
            (),
            "brokers",
        ),
        FindingKind(
            "partitions-differ",
            error,
            "topics of one subtopology do not have the partitions that belong together",
            "Every start of the application fails: a changelog has as many partitions as the greatest source topic of "
            "its subtopology.",
            "Find out which topic was changed. A topic cannot get fewer partitions: it has to be created again, and an "
            "application with another number of partitions has to be reset.",
            (),
            "brokers",
        ),
        FindingKind(
            "group-offsets-missing",
            loss,
            "the state has offsets, and the application's group has committed nothing",
            "Kafka Streams keeps the state, and reads its input as auto.offset.reset says: earliest applies all of it "
            "to the state a second time, latest skips what came meanwhile.",
            "Set the group's offsets to where the state ends, or reset the application and its state together.",
            (),
            "brokers",
        ),
        FindingKind(
            "group-offsets-differ",
            loss,
            "the application's group does not continue where the state ends",
            "Kafka Streams keeps the state, and continues where the group says. Records before that which the state "
            "already contains are applied a second time. From an offset past the end of its input it continues as "
            "auto.offset.reset says: earliest applies all of it a second time, latest skips what came meanwhile.",
            "Set the group's offsets to where the state ends, or reset the application and its state together.",
            (),
            "brokers",
        ),
        FindingKind(
            "source-ahead",
            loss,
            "a source topic's store is ahead of what the application has committed",
            "Records in between are processed again, although the table contains them already.",
            "Rebuild the store, which ends where the group has committed.",
            (Repair.REBUILD, Repair.MOVE_ASIDE),
            "brokers",
        ),
        FindingKind(
            "global-topic-not-compacted",
            warning,
            "the topic of a global store is not compacted",
            "Retention deletes records that the store contains: a restore gets fewer rows than this instance has.",
            "Set cleanup.policy=compact on the topic.",
            (),
            "brokers",
        ),
        FindingKind(
            "changelog-incomplete",
            loss,
            "the topic of a store does not keep all of its records",
            "A restore gets fewer rows than this instance has, on another instance after a rebalance, or here after a "
            "wipe of the task. If the log is empty, the rows have no other copy.",
            "Set cleanup.policy=compact on the topic. If it lacks records of rows, keep a copy of the directory "
            "(statecore backup --offline), and find out who deleted the records.",
            (),
            "brokers",
        ),
    )


CATALOG: Mapping[str, FindingKind] = MappingProxyType({kind.code: kind for kind in _kinds()})
"""Every kind by its code, in the order of the documentation."""
