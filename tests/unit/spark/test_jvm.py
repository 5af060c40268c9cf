"""The class archive of the driver's JVM: whose it is, and what is done without it."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from statecore.spark import jvm


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The jars of a PySpark that is found first."""
    package = tmp_path / "site" / "pyspark"
    (package / "jars").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "jars" / "one.jar").write_bytes(b"1")
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch()
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    monkeypatch.syspath_prepend(package.parent)
    return package / "jars"


def test_an_archive_is_of_the_jars_it_was_made_from(jars: Path) -> None:
    first = jvm.archive_path()
    assert first is not None
    assert jvm.archive_path() == first
    os.utime(jars / "one.jar", (1, 1))
    second = jvm.archive_path()
    assert second is not None
    assert second != first
    assert second.name.rpartition("-")[0] == first.name.rpartition("-")[0], "of the same environment"


def test_an_archive_of_other_jars_is_not_named_to_the_jvm(jars: Path) -> None:
    made = jvm.archive_path()
    assert made is not None
    made.parent.mkdir(parents=True)
    made.touch()
    assert any(str(made) in option for option in jvm.quick_start_options())
    (jars / "two.jar").touch()
    assert not any("SharedArchiveFile" in option for option in jvm.quick_start_options())


def test_without_jars_there_is_no_archive(jars: Path) -> None:
    """As of a PySpark that is a client alone."""
    (jars / "one.jar").unlink()
    jars.rmdir()
    assert jvm.archive_path() is None
    assert "-Xshare:auto" in jvm.quick_start_options()


def test_a_new_archive_takes_the_place_of_the_environment_s_own_and_of_what_is_not_used(jars: Path) -> None:
    archive = jvm.archive_path()
    assert archive is not None
    archive.parent.mkdir(parents=True)
    mine = archive.name.rpartition("-")[0]
    old, new = time.time() - jvm.ARCHIVE_RETENTION_SECONDS - 3600, time.time()
    for name, used in {
        archive.name: new,
        f"{mine}-0.jsa": new,
        f"{mine}-0.jsa.77": new,  # another process makes it
        "spark-1-0.jsa": new,
        "spark-2-0.jsa": old,
        "spark-2-0.jsa.77": old,
        "kernels.so": old,
    }.items():
        (archive.parent / name).touch()
        os.utime(archive.parent / name, (used, used))
    jvm.delete_unused_archives(archive)
    left = {file.name for file in archive.parent.iterdir()}
    assert left == {archive.name, f"{mine}-0.jsa.77", "spark-1-0.jsa", "kernels.so"}


def test_an_archive_that_a_jvm_is_started_with_counts_as_used(jars: Path) -> None:
    archive = jvm.archive_path()
    assert archive is not None
    archive.parent.mkdir(parents=True)
    archive.touch()
    os.utime(archive, (1, 1))
    jvm.quick_start_options()
    jvm.delete_unused_archives(archive)
    assert archive.exists()
