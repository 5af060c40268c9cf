"""Has RocksDB write what a running application's stores have in memory, as it does by itself when memory is full.

Kafka Streams has no call for it that all versions have, so the open databases are looked for in the objects of the
application, by the names that the fields have in 3.9, 4.2 and 4.3 alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.harness.streams import StreamsApplication, stores_of

_INWARD = ("wrapped", "internal", "inner", "store", "segmentStores", "physicalStore", "segments")
"""Fields that lead from a store to what it keeps its rows in."""


def flush(running: StreamsApplication, chosen: Callable[[str, int, str], bool] = lambda *_: True) -> list[str]:
    """Flushes databases of the active tasks, all column families of each at once.

    Args:
        running: the application.
        chosen: of (store, partition, name of the database: the store, or ``store.<segment start>``) whether to.

    Returns:
        Names of the databases that were flushed.
    """
    flushed = []
    for store, partition, found in _stores(running):
        for database in _databases(found):
            name = str(_field(database, "name"))
            if chosen(store, partition, name):
                _flush(running, database)
                flushed.append(name)
    return flushed


def flush_global(running: StreamsApplication) -> list[str]:
    """Flushes the global stores; returns their names."""
    flushed = []
    topology = _field(_field(running._streams, "globalStreamThread"), "topology")
    for store in topology.globalStateStores().toArray():
        for database in _databases(store):
            _flush(running, database)
            flushed.append(str(_field(database, "name")))
    return flushed


def _stores(running: StreamsApplication) -> Iterator[tuple[str, int, Any]]:
    names = stores_of(running.describe())
    for thread in _field(running._streams, "threads").toArray():
        for task in _field(thread, "taskManager").activeTaskMap().entrySet().toArray():
            task = task.getValue()
            get = task.getStore if running.jvm.version.startswith("3.") else task.store
            for store in sorted(names.get(int(task.id().subtopology()), ())):
                found = get(store)
                if found is not None:
                    yield store, int(task.id().partition()), found


def _databases(found: Any) -> list[Any]:
    """The open ``RocksDBStore`` objects that a store consists of; none when it is in memory."""
    if _has(found, "cfAccessor"):
        return [found]
    if str(found.getClass().getName()).endswith("java.util.TreeMap"):
        return [one for entry in found.entrySet().toArray() for one in _databases(entry.getValue())]
    for name in _INWARD:
        if _has(found, name):
            return _databases(_field(found, name))
    return []


def _flush(running: StreamsApplication, database: Any) -> None:
    java = running.jvm.jvm
    accessor = _field(database, "cfAccessor")
    handles = java.java.util.ArrayList()
    for field in _fields(accessor):
        if str(field.getType().getName()) == "org.rocksdb.ColumnFamilyHandle":
            handles.add(_value(field, accessor))
    options = java.org.rocksdb.FlushOptions().setWaitForFlush(True)
    try:
        _field(database, "db").flush(options, handles)
    finally:
        options.close()


def _fields(of: Any) -> Iterator[Any]:
    """Every field of an object's class and those above it."""
    kind = of.getClass()
    while kind is not None:
        yield from kind.getDeclaredFields()
        kind = kind.getSuperclass()


def _has(of: Any, name: str) -> bool:
    return any(str(field.getName()) == name for field in _fields(of))


def _field(of: Any, name: str) -> Any:
    return _value(next(field for field in _fields(of) if str(field.getName()) == name), of)


def _value(field: Any, of: Any) -> Any:
    field.setAccessible(True)
    return field.get(of)
