"""statecore: rebuilds the state directories of Kafka Streams applications, and offers their stores as a library.

This module has the public names, which stay here whatever moves inside::

    from statecore import RocksDBStore, StoreKind, TopicPartition

Names are loaded on first use, so ``import statecore`` loads neither RocksDB nor Kafka.
"""

from __future__ import annotations

TYPE_CHECKING = False  # what type checkers take for typing.TYPE_CHECKING, without loading typing
if TYPE_CHECKING:
    from statecore.changelog.cluster import Cluster
    from statecore.changelog.groups import committed_offsets
    from statecore.changelog.model import OffsetRange
    from statecore.changelog.reader import ChangelogReader
    from statecore.errors import Capacity, Corrupted, Fenced, Invalid, NotFound, Retryable, StatecoreError
    from statecore.extras import MissingExtra
    from statecore.formats.kinds import StoreKind
    from statecore.formats.rows.keys import SessionKey, WindowKey
    from statecore.formats.rows.lists import ListKey, decode_list, encode_list
    from statecore.formats.rows.row import decode_row, rows_of_record
    from statecore.formats.rows.values import StoredValue, decode_value, encode_value
    from statecore.formats.rows.versions import Version, VersionedKey, decode_versions, encode_versions
    from statecore.formats.serdes import Serde, serde
    from statecore.formats.topic_partition import TopicPartition
    from statecore.global_stores.manager import GlobalStores
    from statecore.global_stores.settings import GlobalSettings, GlobalTable, tables_of
    from statecore.global_stores.state import GlobalState
    from statecore.isolation import IsolationLevel
    from statecore.metrics import (
        Instrument,
        InstrumentKind,
        MeteredProgress,
        Metrics,
        OpenTelemetryMetrics,
        RestoreMetrics,
    )
    from statecore.spec.model import ApplicationSpec, ProcessingGuarantee, StoreSpec
    from statecore.statedir.state_directory import StateDirectory
    from statecore.stores.base import StateStore, commit_requested
    from statecore.stores.in_memory import InMemoryStore
    from statecore.stores.legacy_checkpointing import LegacyCheckpointingStore
    from statecore.stores.metered import MeteredStore
    from statecore.stores.query import QueryView
    from statecore.stores.rocksdb.store import RocksDBStore
    from statecore.stores.settings import KEEP_FILES, Durability, MemorySettings, StoreSettings
    from statecore.stores.transaction import Transaction
    from statecore.stores.write_buffer_store import WriteBufferStore
    from statecore.tasks.active_context import InputRecord, Processor, ProcessorContext
    from statecore.tasks.active_task import ActiveTask, CaughtUp, TaskState
    from statecore.tasks.change_logging import ChangeLoggingStore
    from statecore.tasks.changelog_ends import ChangelogEnd, changelog_ends
    from statecore.tasks.checkpoint_policy import CheckpointSettings, TaskCheckpointer
    from statecore.tasks.commit_policy import CommitPolicy, CommitSettings
    from statecore.tasks.properties import ProcessorSettings
    from statecore.tasks.restoration.restore import OnStale, Restored, RestoreReader, RestoreSettings, restore
    from statecore.tasks.standby_task import FollowResult, RoundResult, StandbySettings, StandbyTask
    from statecore.tasks.startup_tasks import StartupSettings, StartupTasks
    from statecore.tasks.task_directory import LoggedStore, TaskDirectory, open_task_directory
    from statecore.tasks.task_offsets import AdoptedOffsets, NextReader, TaskOffsets, TaskStore
    from statecore.tasks.task_stores import TaskStores
    from statecore.telemetry import metrics_from_environment

__version__ = "0.1.0"

__all__ = [
    "KEEP_FILES",
    "ActiveTask",
    "AdoptedOffsets",
    "ApplicationSpec",
    "Capacity",
    "CaughtUp",
    "ChangeLoggingStore",
    "ChangelogEnd",
    "ChangelogReader",
    "CheckpointSettings",
    "Cluster",
    "CommitPolicy",
    "CommitSettings",
    "Corrupted",
    "Durability",
    "Fenced",
    "FollowResult",
    "GlobalSettings",
    "GlobalState",
    "GlobalStores",
    "GlobalTable",
    "InMemoryStore",
    "InputRecord",
    "Instrument",
    "InstrumentKind",
    "Invalid",
    "IsolationLevel",
    "LegacyCheckpointingStore",
    "ListKey",
    "LoggedStore",
    "MemorySettings",
    "MeteredProgress",
    "MeteredStore",
    "Metrics",
    "MissingExtra",
    "NextReader",
    "NotFound",
    "OffsetRange",
    "OnStale",
    "OpenTelemetryMetrics",
    "ProcessingGuarantee",
    "Processor",
    "ProcessorContext",
    "ProcessorSettings",
    "QueryView",
    "RestoreMetrics",
    "RestoreReader",
    "RestoreSettings",
    "Restored",
    "Retryable",
    "RocksDBStore",
    "RoundResult",
    "Serde",
    "SessionKey",
    "StandbySettings",
    "StandbyTask",
    "StartupSettings",
    "StartupTasks",
    "StateDirectory",
    "StateStore",
    "StatecoreError",
    "StoreKind",
    "StoreSettings",
    "StoreSpec",
    "StoredValue",
    "TaskCheckpointer",
    "TaskDirectory",
    "TaskOffsets",
    "TaskState",
    "TaskStore",
    "TaskStores",
    "TopicPartition",
    "Transaction",
    "Version",
    "VersionedKey",
    "WindowKey",
    "WriteBufferStore",
    "changelog_ends",
    "commit_requested",
    "committed_offsets",
    "decode_list",
    "decode_row",
    "decode_value",
    "decode_versions",
    "encode_list",
    "encode_value",
    "encode_versions",
    "metrics_from_environment",
    "open_task_directory",
    "restore",
    "rows_of_record",
    "serde",
    "tables_of",
]

_NAMES = {
    "changelog.cluster": ("Cluster",),
    "changelog.groups": ("committed_offsets",),
    "changelog.model": ("OffsetRange",),
    "changelog.reader": ("ChangelogReader",),
    "errors": ("Capacity", "Corrupted", "Fenced", "Invalid", "NotFound", "Retryable", "StatecoreError"),
    "formats.kinds": ("StoreKind",),
    "formats.rows.keys": ("SessionKey", "WindowKey"),
    "formats.rows.lists": ("ListKey", "decode_list", "encode_list"),
    "formats.rows.row": ("decode_row", "rows_of_record"),
    "formats.rows.values": ("StoredValue", "decode_value", "encode_value"),
    "formats.rows.versions": ("Version", "VersionedKey", "decode_versions", "encode_versions"),
    "formats.serdes": ("Serde", "serde"),
    "extras": ("MissingExtra",),
    "formats.topic_partition": ("TopicPartition",),
    "global_stores.manager": ("GlobalStores",),
    "global_stores.settings": ("GlobalSettings", "GlobalTable", "tables_of"),
    "global_stores.state": ("GlobalState",),
    "isolation": ("IsolationLevel",),
    "metrics": ("Instrument", "InstrumentKind", "MeteredProgress", "Metrics", "OpenTelemetryMetrics", "RestoreMetrics"),
    "statedir.state_directory": ("StateDirectory",),
    "tasks.active_context": ("InputRecord", "Processor", "ProcessorContext"),
    "tasks.active_task": ("ActiveTask", "CaughtUp", "TaskState"),
    "tasks.change_logging": ("ChangeLoggingStore",),
    "tasks.commit_policy": ("CommitPolicy", "CommitSettings"),
    "tasks.properties": ("ProcessorSettings",),
    "tasks.restoration.restore": ("OnStale", "RestoreReader", "RestoreSettings", "Restored", "restore"),
    "tasks.changelog_ends": ("ChangelogEnd", "changelog_ends"),
    "tasks.checkpoint_policy": ("CheckpointSettings", "TaskCheckpointer"),
    "tasks.standby_task": ("FollowResult", "RoundResult", "StandbySettings", "StandbyTask"),
    "tasks.startup_tasks": ("StartupSettings", "StartupTasks"),
    "tasks.task_directory": ("LoggedStore", "TaskDirectory", "open_task_directory"),
    "tasks.task_offsets": ("NextReader", "AdoptedOffsets", "TaskOffsets", "TaskStore"),
    "tasks.task_stores": ("TaskStores",),
    "spec.model": ("ApplicationSpec", "ProcessingGuarantee", "StoreSpec"),
    "stores.base": ("StateStore", "commit_requested"),
    "stores.in_memory": ("InMemoryStore",),
    "stores.legacy_checkpointing": ("LegacyCheckpointingStore",),
    "stores.metered": ("MeteredStore",),
    "stores.query": ("QueryView",),
    "stores.rocksdb.store": ("RocksDBStore",),
    "stores.settings": ("KEEP_FILES", "Durability", "MemorySettings", "StoreSettings"),
    "stores.write_buffer_store": ("WriteBufferStore",),
    "stores.transaction": ("Transaction",),
    "telemetry": ("metrics_from_environment",),
}
_MODULES = {name: f"statecore.{module}" for module, names in _NAMES.items() for name in names}
"""Every public name, with its module."""


if not TYPE_CHECKING:  # so that type checkers report unknown names

    def __getattr__(name: str) -> object:
        module = _MODULES.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        found: object = getattr(import_module(module), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
