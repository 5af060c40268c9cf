"""Looking at state that real Kafka Streams wrote: inspect while it runs, discover, and dump against its own answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from statecore.cli.main import main
from statecore.doctor.diagnosis import diagnose_directory, inspect
from statecore.doctor.finding_catalog import Severity
from statecore.formats.kinds import StoreKind
from statecore.spec.model import ProcessingGuarantee
from statecore.spec.reader import parse_spec
from statecore.statedir.state_directory import StateDirectory
from tests.harness.broker import Broker
from tests.harness.corpus import Corpus, Lived, shared
from tests.harness.kinds import GLOBALS, HEADERS, PLAIN, SOURCES, KindCase
from tests.harness.modes import AT_LEAST_ONCE, EXACTLY_ONCE, Mode
from tests.harness.queries import StoreQuery
from tests.harness.rebuilding import PARTITIONS, KindsWorld
from tests.harness.streams import StreamsJvm

pytestmark = pytest.mark.integration

APPLICATIONS = {one.name: one for one in (PLAIN, HEADERS, SOURCES, GLOBALS)}
CASES = [(name, case) for name, kinds in APPLICATIONS.items() for case in kinds.cases if case.kind != "in-memory"]
ASKED = [(name, case) for name, case in CASES if case.query is not None]
ALIKE = {"headers-emit-final-sliding-window": "headers-emit-final-window"}
"""Kinds that lie on disk as another one, and are discovered as that."""


@dataclass(frozen=True)
class Looked:
    """An application that ran, and what was seen of it.

    Attributes:
        world: it.
        lived: what was told of it when it ran.
        described: the text of its topology.
    """

    world: KindsWorld
    lived: Lived
    described: Path


class Commands:
    """Command lines in this process, which is much faster than a process for each.

    Args:
        capture: pytest's, of the file descriptors.
    """

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def lines(self, *words: object) -> list[str]:
        """What a command prints."""
        self._capture.readouterr()
        code = main([str(word) for word in words])
        out, err = self._capture.readouterr()
        assert code == 0, err
        return out.splitlines()

    def document(self, *words: object) -> dict[str, Any]:
        """Its one document."""
        (line,) = self.lines(*words, "--json")
        return json.loads(line)


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Commands:
    return Commands(capfd)


@pytest.fixture(scope="module")
def ran() -> dict[str, Looked]:
    """Each application runs once, in whatever order the tests ask for it."""
    return {}


@pytest.fixture
def looked(
    request: pytest.FixtureRequest,
    broker: Broker,
    streams_jvm: StreamsJvm,
    tmp_path_factory: pytest.TempPathFactory,
    ran: dict[str, Looked],
) -> Looked:
    name: str = request.param
    if name not in ran:
        corpus = Corpus(shared(tmp_path_factory), broker, streams_jvm)
        mode = Mode(EXACTLY_ONCE if name == PLAIN.name else AT_LEAST_ONCE)
        world, lived = corpus.take(APPLICATIONS[name], mode, tmp_path_factory.mktemp("dump"))
        described = world.state_dir / "describe.txt"
        described.write_text(world.description)
        ran[name] = Looked(world, lived, described)
    return ran[name]


@pytest.mark.parametrize("looked", APPLICATIONS, indirect=True)
def test_inspect_sees_every_store_while_the_application_runs(looked: Looked) -> None:
    (found,) = looked.lived.inspected["applications"]
    assert found["lock"]["process"] == looked.lived.process
    declared = {case.store for case in looked.world.kinds.cases if case.kind != "in-memory"}
    assert {store["store"] for store in found["stores"]} == declared
    for store in found["stores"]:
        assert not [one for one in store["problems"] if "no segment" not in one]


@pytest.mark.parametrize("looked", APPLICATIONS, indirect=True)
def test_inspect_agrees_with_the_rows_and_offsets_of_a_closed_application(looked: Looked, run: Commands) -> None:
    world = looked.world
    before = sorted((path, path.stat().st_mtime_ns) for path in world.directory.rglob("*"))
    (found,) = run.document("inspect", "--state-dir", world.state_dir)["applications"]
    assert found["lock"] is None
    rows: dict[tuple[str, str], int] = {}
    for (task, name), families in world.rows().items():
        key = (task, name.partition("/")[0])
        rows[key] = rows.get(key, 0) + sum(len(part) for part in families.values())
    assert {(store["task"], store["store"]): store["rows"] for store in found["stores"] if store["rows"]} == rows
    kinds = {case.store: ALIKE.get(case.kind, case.kind) for case in world.kinds.cases}
    # A task without a place for one of its offsets is wiped by the next start under exactly-once.
    no_segment = {store["task"] for store in found["stores"] if any("no segment" in one for one in store["problems"])}
    wiped = no_segment if world.guarantee == "exactly_once_v2" else set()
    for store in found["stores"]:
        if store["rows"]:
            assert store["kind"] == kinds[store["store"]]
            assert len(store["offsets"]) == (PARTITIONS if store["task"] == "global" else 1)
            is_lost = store["kind"] == "grace-buffer" and store["task"] in wiped
            assert ["mis-keys its" in one for one in store["problems"]] == [True] * is_lost
    assert sorted((path, path.stat().st_mtime_ns) for path in world.directory.rglob("*")) == before


@pytest.mark.parametrize("looked", APPLICATIONS, indirect=True)
def test_the_doctor_finds_nothing_while_it_runs_and_what_is_to_be_found_when_it_was_closed(looked: Looked) -> None:
    world = looked.world
    (running,) = looked.lived.examined["applications"]
    assert running["lock"] is not None
    assert running["findings"] == []
    before = sorted((path, path.stat().st_mtime_ns, path.stat().st_ctime_ns) for path in world.directory.rglob("*"))
    directory, spec = StateDirectory(world.state_dir, world.application_id), parse_spec(world.spec())
    found = diagnose_directory(directory, spec=spec, scan=True)
    said = {(one.code, one.store) for one in found.findings if one.severity is not Severity.NOTE}
    stores = inspect(directory, spec=spec).stores
    empty = {(store.task, store.store) for store in stores if store.segmented and not store.databases}
    expected = {("segment-missing", store) for _, store in empty}
    # A task without a place for one of its offsets is wiped by the next start, which restores its buffers.
    wiped = {task for task, _ in empty}
    buffers = {store.store for store in stores if store.kind is StoreKind.GRACE_BUFFER and store.task in wiped}
    expected |= {("grace-buffer-miskeyed", store) for store in buffers}
    is_exactly_once = spec.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2
    assert said == (expected if is_exactly_once else set())
    assert {one.code for one in found.findings} <= {"segment-missing"} | {code for code, _ in said}
    every = sorted((path, path.stat().st_mtime_ns, path.stat().st_ctime_ns) for path in world.directory.rglob("*"))
    assert every == before


@pytest.mark.parametrize("looked", APPLICATIONS, indirect=True)
@pytest.mark.parametrize("with_topology", [True, False], ids=["topology", "directory"])
def test_discover_writes_the_spec_of_an_application_of_many_kinds(
    looked: Looked, run: Commands, with_topology: bool
) -> None:
    world = looked.world
    words = ["--bootstrap-servers", world.servers, "--application-id", world.application_id]
    words += ["--state-dir", str(world.state_dir)] + (["--topology", str(looked.described)] if with_topology else [])
    found = run.document("discover", *words)
    expected = world.spec()
    for number, subtopology in expected["subtopologies"].items():
        for store, declared in subtopology["stores"].items():
            if declared["kind"] == "in-memory" and not with_topology:
                assert store not in found["spec"]["subtopologies"][number]["stores"]
                continue
            wanted = {**declared, "kind": ALIKE.get(declared["kind"], declared["kind"])}
            discovered = found["spec"]["subtopologies"][number]["stores"][store]
            assert discovered == wanted, store
            remarks = found["notes"]["beside"].get(store, "")
            if declared["kind"] != "in-memory":
                assert not any(word in remarks for word in ("guess", "one of", "contradicts", "by its")), remarks
    assert {name: store["kind"] for name, store in found["spec"].get("global_stores", {}).items()} == {
        name: store["kind"] for name, store in expected.get("global_stores", {}).items()
    }
    assert found["spec"]["processing_guarantee"] == world.guarantee


@pytest.mark.parametrize(("looked", "case"), ASKED, ids=lambda one: getattr(one, "store", one), indirect=["looked"])
def test_dump_shows_what_interactive_queries_answer(looked: Looked, run: Commands, case: KindCase) -> None:
    world = looked.world
    query = world.kinds.queries(world.base)[case.store]
    words = ["dump", "--state-dir", world.state_dir, "--application-id", world.application_id, "--store", case.store]
    rows = [json.loads(line) for line in run.lines(*words, "--format", "jsonl")]
    partitions = [None] if case.is_global else range(PARTITIONS)
    assert any(looked.lived.answers[case.store, partition] for partition in partitions)
    for partition in partitions:
        shown = [row for row in rows if row["partition"] == partition]
        answered = looked.lived.answers[case.store, partition]
        if query.shape == "versioned":
            asked = {key.hex() for key in query.keys}
            latest = sorted(
                (row["key"], row["value"], row["valid_from"])
                for row in shown
                if row["valid_to"] is None and row["key"] in asked
            )
            everything = {(row["key"], row["value"], row["valid_from"]) for row in shown}
            plain = [(key, value, time) for key, value, time in answered if b"@" not in key]
            assert sorted((key.hex(), value.hex(), time) for key, value, time in plain) == [
                row for row in latest if row[1] is not None
            ]
            history = [one for one in answered if b"@" in one[0]]
            assert history
            assert {(key[: key.index(b"@")].hex(), value.hex(), time) for key, value, time in history} <= everything
        else:
            assert sorted(answer_of(row, query) for row in shown if is_asked_for(row, query)) == sorted(
                (key.hex()[: -16 if query.shape == "window" else None], value.hex(), time)
                for key, value, time in answered
            )


def is_asked_for(row: dict[str, Any], query: StoreQuery) -> bool:
    return row.get("window_start", row.get("session_end", query.since)) >= query.since


def answer_of(row: dict[str, Any], query: StoreQuery) -> tuple[str, str, int | None]:
    """A dumped row in the form of an answer: times behind the key, headers behind the value."""
    times = [row[name].to_bytes(8).hex() for name in ("window_start", "session_start", "session_end") if name in row]
    headers = [
        f"RecordHeader(key = {one['key']}, value = {java_bytes(one['value'])})" for one in row.get("headers") or ()
    ]
    said = f"[{', '.join(headers)}]".encode().hex() if query.headers else ""
    return row["key"] + "".join(times), row["value"] + said, row.get("timestamp")


def java_bytes(value: str | None) -> str:
    if value is None:
        return "null"
    return f"[{', '.join(str(byte - 256 if byte > 127 else byte) for byte in bytes.fromhex(value))}]"


@pytest.mark.parametrize(("looked", "case"), CASES, ids=lambda one: getattr(one, "store", one), indirect=["looked"])
def test_every_store_can_be_dumped_as_parquet_and_counts_agree(
    looked: Looked, run: Commands, case: KindCase, tmp_path: Path
) -> None:
    from pyarrow import parquet

    world = looked.world
    words = ["dump", "--state-dir", world.state_dir, "--application-id", world.application_id, "--store", case.store]
    if case.store in ("sparse-window", "put-session"):
        words += ["--kind", case.kind]
    file = tmp_path / "rows.parquet"
    found = run.document(*words, "--format", "parquet", "--output", file)
    table = parquet.read_table(file)
    assert found["rows"] == table.num_rows > 0
    assert table.schema.metadata[b"statecore.kind"].decode() == found["kind"]
    assert len(run.lines(*words, "--format", "jsonl")) == table.num_rows
