"""Makes the golden files: stores as Kafka Streams wrote them, beside the changelog records they came from.

``python -m tests.golden.make [DIRECTORY]`` starts a broker and an application for each case and writes
``<case>.json`` into the directory, ``tests/golden`` without one. The files are committed; they are made again when
Kafka Streams is upgraded, and the difference is then read by a person (timestamps of the run are fixed, so only a
changed format changes them; ``position`` and offsets under exactly-once may move with the number of transactions that
happened to be made, and records of the grace buffer's changelog have the time of the run). Those that are committed
are of 4.3.1: what 4.4.0 writes differs in nothing else.

One file is one partition of one store::

    {
      "kafka_streams": "4.3.1",
      "case": "timestamped-key-value-exactly-once",
      "kind": "timestamped-key-value",          as in the spec
      "guarantee": "exactly_once_v2",
      "input": "in",                            source topic of the task, or the application of many
      "task": "0_0", "store": "golden", "partition": 0,
      "retention_ms": 600000,                   only where the kind has one
      "changelog": "…-golden-changelog",
      "log_start_offset": 0,
      "log_end_offset": 42,                     with control batches, aborted records and all
      "records": [                              what a read_committed consumer gets, in order; bytes are hex
        {"offset": 0, "timestamp": 1357034400000, "key": "00ff", "value": null, "headers": [["name", "0102"]]}
      ],
      "families": {                             every row of every column family after a clean close, in RocksDB's order
        "default": [["key as hex", "value as hex"]],
        "offsets": [["6f…", "00000000000000ff"]]
      },
      "segments": {"store.1357034400000": {…}}  instead of families where the store has segments: the same for each
      "checkpoint": "0\n1\n…"                   only where the store keeps its offset in .checkpoint_<store>
    }
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.harness import directory, feeds, jars, topics
from tests.harness.broker import Broker
from tests.harness.kinds import HEADERS, PLAIN, KindsApplication
from tests.harness.sources import RETENTION
from tests.harness.streams import StreamsApplication, StreamsJvm
from tests.harness.topics import Record

HERE = Path(__file__).resolve().parent
INPUT = "in"
STORE = "golden"
KINDS = ("key-value", "timestamped-key-value")
GUARANTEES = {"exactly-once": "exactly_once_v2", "at-least-once": "at_least_once"}

STORES = {
    "versioned-key-value": (PLAIN, "versioned-key-value"),
    "window": (PLAIN, "window"),
    "timestamped-window": (PLAIN, "timestamped-window"),
    "session": (PLAIN, "session"),
    "emit-final-window": (PLAIN, "emit-final-window"),
    "emit-final-sliding-window": (PLAIN, "emit-final-sliding-window"),
    "emit-final-session": (PLAIN, "emit-final-session"),
    "join-window": (PLAIN, "inner-this-join-store"),
    "list": (PLAIN, "outer-outer-shared-join-store"),
    "grace-buffer": (PLAIN, "grace-Buffer"),
    "headers-key-value": (HEADERS, "put-key-value"),
    "headers-window": (HEADERS, "put-window"),
    "headers-window-of-join": (HEADERS, "inner-this-join-store"),
    "headers-session": (HEADERS, "put-session"),
    "headers-emit-final-window": (HEADERS, "headers-emit-final-window"),
    "headers-emit-final-sliding-window": (HEADERS, "headers-emit-final-sliding-window"),
    "headers-emit-final-session": (HEADERS, "headers-emit-final-session"),
}
"""The other goldens: a name, and the store of ``tests.harness.kinds`` it shows."""

_EVENTS = 30
KEEPS = {"log.cleaner.enable": "false", "log.retention.check.interval.ms": "86400000"}
"""Settings of a broker that deletes no record, however old."""

_DAY = 1_357_034_400_000  # 2013-01-01 10:00 UTC: the first flight of the demo


def rounds() -> list[list[Record]]:
    """The input, in the portions it is processed and committed in: awkward keys and values, updates, deletes."""
    keys = [b"\x00", b"\x00\x00", b"\xff", b"\xff\x00", b"a", b"ab", b"b" * 200, "schlüssel".encode(), b"7", b"8"]
    first = [Record(key, b"value of " + key, timestamp=_DAY + i) for i, key in enumerate(keys)]
    second = [
        Record(b"a", b"updated", timestamp=_DAY + 1000),
        Record(b"a", b"updated later with an earlier time", timestamp=_DAY - 1000),
        Record(b"ab", None, timestamp=_DAY + 1001),
        Record(b"never there", None, timestamp=_DAY + 1002),
        Record(b"empty", b"", timestamp=_DAY + 1003),
        Record(b"1970", b"the earliest time a producer can set", timestamp=1),
        Record(None, b"no key: the store never sees it", timestamp=_DAY + 1004),
        Record(
            b"with headers", b"the plain formats drop them", timestamp=_DAY + 1005, headers=(("h", b"1"), ("n", None))
        ),
    ]
    third = [
        Record(b"8", None, timestamp=_DAY + 2000),
        Record(b"8", b"back again", timestamp=_DAY + 2001),
        Record(b"7", b"short lived", timestamp=_DAY + 2002),
        Record(b"7", None, timestamp=_DAY + 2003),
        Record(b"long", bytes(range(256)) * 4, timestamp=_DAY + 2004),
    ]
    return [first, second, third]


def topology(kind: str) -> Any:
    """A function that makes the topology of a kind: the input as a table, without a cache, so that all is logged."""

    def build(jvm: StreamsJvm) -> Any:
        streams = jvm.jvm.org.apache.kafka.streams
        serdes = jvm.jvm.org.apache.kafka.common.serialization.Serdes
        stores = streams.state.Stores
        supplier = {
            "key-value": stores.persistentKeyValueStore,
            "timestamped-key-value": stores.persistentTimestampedKeyValueStore,
        }[kind](STORE)
        consumed = getattr(streams.kstream.Consumed, "with")(serdes.ByteArray(), serdes.ByteArray())
        builder = streams.StreamsBuilder()
        stream = builder.stream(INPUT, consumed)
        stream.toTable(getattr(streams.kstream.Materialized, "as")(supplier).withCachingDisabled())
        return builder.build()

    return build


def make(broker: Broker, jvm: StreamsJvm, state_dir: Path, kind: str, guarantee: str) -> dict[str, Any]:
    """Runs one case and returns its golden file as an object."""
    bytes_serde = "org.apache.kafka.common.serialization.Serdes$ByteArraySerde"
    application = StreamsApplication(
        jvm,
        f"{kind}-{guarantee}",
        broker.bootstrap_servers,
        state_dir,
        topology(kind),
        guarantee=GUARANTEES[guarantee],
        properties={"default.key.serde": bytes_serde, "default.value.serde": bytes_serde},
    )
    servers = broker.bootstrap_servers
    topics.create(servers, INPUT)
    try:
        with application:
            for portion in rounds():
                topics.produce(servers, INPUT, portion)
                topics.wait_until_consumed(servers, application.application_id, [INPUT])
        changelog = f"{application.application_id}-{STORE}-changelog"
        return {
            "kafka_streams": jars.KAFKA_VERSION,
            "case": f"{kind}-{guarantee}",
            "kind": kind,
            "guarantee": GUARANTEES[guarantee],
            "input": INPUT,
            "task": "0_0",
            "store": STORE,
            "partition": 0,
            "changelog": changelog,
            "log_start_offset": topics.start_offset(servers, changelog, 0),
            "log_end_offset": topics.end_offset(servers, changelog, 0),
            "records": [_record(one) for one in topics.read(servers, changelog, 0)],
            "families": {
                name: [[key.hex(), value.hex()] for key, value in rows]
                for name, rows in directory.read_application(application.directory)["0_0", STORE].items()
            },
        }
    finally:
        topics.delete(servers, INPUT)


def make_all(
    broker: Broker, jvm: StreamsJvm, state_dir: Path, of: KindsApplication, guarantee: str
) -> list[dict[str, Any]]:
    """Runs an application of many stores and returns the golden files of its stores."""
    servers = broker.bootstrap_servers
    inputs = {role: f"{of.name}-{guarantee}-{role}" for role in of.roles()}
    application = StreamsApplication(
        jvm,
        f"{of.name}-{guarantee}",
        servers,
        state_dir,
        of.topology(inputs),
        guarantee=GUARANTEES[guarantee],
        properties=of.properties,
    )
    for topic in inputs.values():
        topics.create(servers, topic)
    with application:
        tasks = {store: task for task, store, _ in application.store_tasks()}
        for role, portion in feeds.feed(_DAY, 1, _EVENTS):
            if role in inputs:
                topics.produce(servers, inputs[role], portion)
                topics.wait_until_consumed(servers, application.application_id, [inputs[role]])
    found = directory.read_application(application.directory)
    cases = {case.store: case for case in of.cases}
    made = []
    for name, (where, store) in STORES.items():
        if where is not of:
            continue
        changelog = f"{application.application_id}-{store}-changelog"
        databases = {
            key[1].partition("/")[2]: families for key, families in found.items() if key[1].split("/")[0] == store
        }
        readable = {
            segment: {family: [[key.hex(), value.hex()] for key, value in rows] for family, rows in families.items()}
            for segment, families in databases.items()
        }
        checkpoint = application.directory / tasks[store] / f".checkpoint_{store}"
        made.append(
            {
                "kafka_streams": jars.KAFKA_VERSION,
                "case": f"{name}-{guarantee}",
                "kind": cases[store].kind,
                "guarantee": GUARANTEES[guarantee],
                "input": application.application_id,
                "task": tasks[store],
                "store": store,
                "partition": 0,
                **({"retention_ms": RETENTION} if cases[store].expires else {}),
                "changelog": changelog,
                "log_start_offset": topics.start_offset(servers, changelog, 0),
                "log_end_offset": topics.end_offset(servers, changelog, 0),
                "records": [_record(one) for one in topics.read(servers, changelog, 0)],
                **({"families": readable[""]} if "" in readable else {"segments": readable}),
                **({"checkpoint": checkpoint.read_text()} if checkpoint.exists() else {}),
            }
        )
    return made


def _record(one: Record) -> dict[str, Any]:
    return {
        "offset": one.offset,
        "timestamp": one.timestamp,
        "key": None if one.key is None else one.key.hex(),
        "value": None if one.value is None else one.value.hex(),
        "headers": [[name, None if value is None else value.hex()] for name, value in one.headers],
    }


def main() -> None:
    """Makes every golden file."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "directory", nargs="?", type=Path, default=HERE, help="that receives them; tests/golden without"
    )
    target = parser.parse_args().directory
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="statecore-golden-") as scratch:
        base = Path(scratch)
        # Times decades apart roll segments, and a rolled segment would be compacted, or deleted (of a window):
        # the files show every record.
        with (
            Broker(base / "broker", settings=KEEPS) as broker,
            StreamsJvm(base / "streams.log") as jvm,
        ):
            for kind in KINDS:
                for guarantee in GUARANTEES:
                    _write(target, make(broker, jvm, base / "state", kind, guarantee))
            for of in (PLAIN, HEADERS):
                for guarantee in GUARANTEES:
                    for made in make_all(broker, jvm, base / "state", of, guarantee):
                        _write(target, made)


def _write(directory: Path, made: dict[str, Any]) -> None:
    file = directory / f"{made['case']}.json"
    file.write_text(_text(made))
    print(f"{file.name}: {len(made['records'])} records", file=sys.stderr)


def _text(made: dict[str, Any]) -> str:
    """JSON with a line for each record and row, so that a difference can be read."""
    fields = [f"{json.dumps(name)}: {_lines(value, 1)}" for name, value in made.items()]
    return "{\n " + ",\n ".join(fields) + "\n}\n"


def _lines(value: Any, depth: int) -> str:
    """A list has a line for each element, and so has an object of lists or of objects."""
    indent = "\n" + " " * (depth + 1)
    end = "\n" + " " * depth
    if isinstance(value, list) and value:
        return "[" + indent + f",{indent}".join(json.dumps(one) for one in value) + end + "]"
    if isinstance(value, dict) and value:
        return (
            "{"
            + indent
            + f",{indent}".join(f"{json.dumps(k)}: {_lines(v, depth + 1)}" for k, v in value.items())
            + end
            + "}"
        )
    return json.dumps(value)


if __name__ == "__main__":
    main()
