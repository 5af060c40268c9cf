"""What is put: bytes, a file, or bytes that are made as they are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.errors import NotFound
from statecore.objectstore.content import Content, Source, bytes_of, check_content, opened, size_of
from tests.harness.raising import raises
from tests.unit.objectstore.implementations import IMPLEMENTATIONS

DATA = bytes(range(256)) * 5000


class Made(Source):
    """Bytes as a source."""

    def __init__(self, data: bytes = DATA) -> None:
        self._data, self.size = data, len(data)

    def read(self, start: int, end: int) -> bytes:
        return self._data[start:end]


@pytest.fixture(params=["bytes", "file", "source"])
def content(request: pytest.FixtureRequest, tmp_path: Path) -> Content:
    file = tmp_path / "file"
    file.write_bytes(DATA)
    return {"bytes": DATA, "file": file, "source": Made()}[request.param]


def test_all_kinds_are_read_alike(content: Content) -> None:
    check_content(content)
    assert size_of(content) == len(DATA)
    for start, end in ((0, len(DATA)), (7, 9), (0, 0), (len(DATA) - 3, len(DATA) + 10)):
        assert bytes_of(content, start, end) == DATA[start:end]
    with opened(content) as file:
        assert file.read(10) + file.read() + file.read() == DATA


@pytest.mark.parametrize("implementation", ["directory", "copying directory", "s3"])
def test_what_is_made_as_it_is_read_is_put(implementation: str, tmp_path: Path) -> None:
    blobs = IMPLEMENTATIONS[implementation](tmp_path)
    assert blobs.put_if_absent("a", Made())
    assert not blobs.put_if_absent("a", Made(b"other"))
    assert blobs.get("a") == DATA
    blobs.replace("a", Made(DATA * 16))
    assert blobs.get("a") == DATA * 16, "in parts, where it is put in parts"
    blobs.replace("a", Made(b""))
    assert blobs.get("a") == b""


def test_a_file_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with raises(NotFound, "upload-file-missing"):
        check_content(tmp_path / "absent")
