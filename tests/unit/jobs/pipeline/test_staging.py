"""A result is published whole: after a power loss, a final name has a finished result."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from statecore.jobs.pipeline import staging


@pytest.fixture
def attempt(tmp_path: Path) -> Path:
    """An attempt that has written a run."""
    staging.prepare(tmp_path / "plan")
    made = tmp_path / "plan" / "attempts" / "one"
    made.mkdir()
    (made / "run-00000.sst").write_bytes(b"run")
    return made


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What the operating system is asked to do, in order: ``sync`` and ``rename`` with the name of the file then."""
    found: list[tuple[str, str]] = []
    names: dict[tuple[int, int], str] = {}

    def sync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        for path in Path(f"/proc/self/fd/{descriptor}"), Path(f"/dev/fd/{descriptor}"):
            if path.is_symlink():
                names[status.st_dev, status.st_ino] = path.readlink().name
                break
        found.append(("sync" if status.st_size else "sync of nothing", names.get((status.st_dev, status.st_ino), "?")))
        real["fsync"](descriptor)

    def rename(name: str) -> Any:
        def renamed(source: Any, target: Any, **values: Any) -> None:
            real[name](source, target, **values)
            found.append(("rename", f"{Path(source).name} -> {Path(target).name}"))

        return renamed

    real: dict[str, Any] = {name: getattr(os, name) for name in ("fsync", "rename", "replace")}
    monkeypatch.setattr(os, "fsync", sync)
    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, rename(name))
    return found


def test_a_result_is_on_the_disk_before_it_has_its_final_name(
    attempt: Path, tmp_path: Path, steps: list[tuple[str, str]]
) -> None:
    final = tmp_path / "plan" / "runs" / "0_0" / "store" / "0.0-10"
    assert staging.publish(attempt, final, b'{"rows": 10}')
    assert steps == [
        ("sync", "result.json.tmp"),  # the document's content
        ("rename", "result.json.tmp -> result.json"),
        ("sync", "one"),  # the names in the attempt: the document's and the run's
        ("rename", "one -> 0.0-10"),
    ]
    assert staging.load(final) == b'{"rows": 10}'
    assert (final / "run-00000.sst").read_bytes() == b"run"


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_document_that_does_not_reach_the_disk_publishes_nothing(
    attempt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, failing, full)
    final = tmp_path / "plan" / "runs" / "0_0" / "store" / "0.0-10"
    with pytest.raises(OSError, match="No space left"):
        staging.publish(attempt, final, b'{"rows": 10}')
    assert not final.exists()
    assert [path.name for path in attempt.iterdir()] == ["run-00000.sst"]


def test_who_comes_second_publishes_nothing(attempt: Path, tmp_path: Path) -> None:
    final = tmp_path / "plan" / "runs" / "0_0" / "store" / "0.0-10"
    final.mkdir(parents=True)
    (final / "result.json").write_text('{"rows": 9}')
    assert not staging.publish(attempt, final, b'{"rows": 10}')
    assert staging.load(final) == b'{"rows": 9}'


def test_a_rename_that_fails_for_another_reason_is_an_error(attempt: Path, tmp_path: Path) -> None:
    final = tmp_path / "plan" / "runs"
    final.write_text("a file")
    with pytest.raises(NotADirectoryError):
        staging.publish(attempt, final, b'{"rows": 10}')
