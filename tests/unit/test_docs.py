"""The snippets of the library's documentation run as they are written, given the names that a reader has to supply."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from statecore.formats.checkpoint import decode_checkpoint
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.base import StateStore
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import StoreSettings

GOLDEN = Path(__file__).resolve().parents[1] / "golden"

DOCS = Path(__file__).resolve().parents[2] / "docs"


def snippet(page: str, containing: str = "") -> str:
    """The Python block of a page that has these words."""
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    (code,) = (block for block in blocks if containing in block)
    return str(code)


def test_no_page_and_no_error_installs_statecore_from_an_index() -> None:
    root = DOCS.parent
    texts = [root / "README.md", *DOCS.rglob("*.md"), *(root / "statecore").rglob("*.py")]
    assert [path.name for path in texts if re.search(r"install [^\n]*\bstatecore(\[|[`'\"])", path.read_text())] == []


def test_the_library_s_page_does_what_its_comments_say(tmp_path: Path) -> None:
    code = snippet("library.md", "store.transaction()")
    values = re.findall(r"^ +(\S+\(.*?\)) +# (b\"3\"|None|41)", code, re.MULTILINE)
    assert len(values) == 3
    for expression, value in values:
        code = code.replace(expression, f"assert {expression} == {value}")
    exec(code, {"path": tmp_path / "db"})
    with RocksDBStore(tmp_path / "db", StoreKind.KEY_VALUE, exactly_once=True) as store:
        assert dict(store.all()) == {b"word": b"3"}


@pytest.mark.parametrize("containing", ["MemorySettings(", "rocksdb_config_setter="])
def test_the_library_s_settings_open_a_store(tmp_path: Path, containing: str) -> None:
    names: dict[str, Any] = {"StoreSettings": StoreSettings}
    exec(snippet("library.md", containing), names)
    with RocksDBStore(tmp_path / "db", StoreKind.KEY_VALUE, create=True, settings=names["settings"]) as store:
        store.put(b"a", b"b")
        store.commit({TopicPartition("t", 0): 1})
        assert store.get(b"a") == b"b"


def test_the_processor_with_checkpoints_can_be_stopped_and_started(tmp_path: Path) -> None:
    def process(store: StateStore) -> Iterator[int]:
        for offset in range(5):
            store.put(b"offset", b"%d" % offset)
            yield offset

    for _ in range(2):
        exec(snippet("offset-files.md"), {"state_dir": tmp_path, "process": process})
    task = tmp_path / "my-app" / "0_0"
    changelog = TopicPartition("my-app-counts-changelog", 0)
    assert decode_checkpoint((task / ".checkpoint").read_bytes(), "") == {changelog: 4}
    with RocksDBStore(task / "rocksdb" / "counts", StoreKind.KEY_VALUE, exactly_once=True) as store:
        assert dict(store.all()) == {b"offset": b"4"}
        assert store.committed_offset(changelog) == 4


def test_the_rows_of_a_windowed_store_are_read_one_at_a_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = json.loads((GOLDEN / "timestamped-window-exactly-once.json").read_text())
    kind = StoreKind(golden["kind"])
    segment = "timestamped-window.1357038000000"  # whose keys and values are text
    families = golden["segments"][segment]
    rows = [tuple(map(bytes.fromhex, row)) for row in families[kind.data_column_family]]
    with RocksDBStore(tmp_path / segment, kind, create=True) as store:
        store.put_all(rows)
        store.commit({TopicPartition(golden["changelog"], 0): 1})
    exec(snippet("stores.md").replace('serde("long")', 'serde("string")'), {"segment": tmp_path / segment})
    shown = [line.split(" ", 3) for line in capsys.readouterr().out.splitlines()]
    assert len(shown) == len(rows) > 1
    for (key, start, stamp, value), (row_key, row) in zip(shown, rows, strict=True):
        assert row_key == key.encode() + int(start).to_bytes(8, "big") + bytes(4)
        assert row == int(stamp).to_bytes(8, "big") + value.encode()


def test_the_loop_of_an_active_task_is_that_of_the_example_that_runs() -> None:
    def lines(code: str) -> list[str]:
        return [line.strip() for line in re.sub(r"(: \w+(\[\[\], bool\])?)(?=[,)])| -> None", "", code).splitlines()]

    example = lines((DOCS / "examples" / "active_task.py").read_text())
    shown = lines(snippet("standby.md", "task.catch_up("))
    loop, around = shown[: shown.index("while not signals:")], shown[shown.index("while not signals:") :]
    for part in (loop, around):
        code = [line for line in part if line]
        found = [line for line in example if line and not line.startswith('"""')]
        at = found.index(code[0])
        assert found[at : at + len(code)] == code


def test_files_that_docs_and_docstrings_name_exist() -> None:
    root = DOCS.parent
    folders = ("statecore", "tests", "bench", "demo", "scripts", "dags", "docs")
    tracked = [path for folder in folders for path in (root / folder).rglob("*.py")]
    known = {path.name for path in tracked} | {"airflow_local_settings.py", "statecore_plugin.py", "restore.py"}
    pages = [*DOCS.glob("*.md"), *root.glob("*.md"), *(root / "statecore").rglob("*.py")]
    named = {
        f"{page.relative_to(root)}: {name}"
        for page in pages
        for name in re.findall(r"`([\w/]+\.py)\b", page.read_text())
        if name.rpartition("/")[2] not in known
    }
    assert named == set()
