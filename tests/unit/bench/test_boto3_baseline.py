from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.boto3_baseline import PIECE, get_objects, put_objects, upload_files
from tests.harness import s3_server


@pytest.mark.parametrize("send", [put_objects, upload_files])
def test_what_was_sent_comes_back_byte_by_byte(
    send: Callable[[Any, str, Sequence[Path]], float], tmp_path: Path
) -> None:
    contents = [os.urandom(2 * PIECE + 5), b"little", os.urandom(PIECE)]
    files = [tmp_path / f"file-{number}" for number in range(len(contents))]
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
    brought = tmp_path / "brought"
    brought.mkdir()
    with s3_server.serving() as server:
        server.bucket("plain")
        client = server.client()
        assert send(client, "plain", files) > 0
        keys = [(f"plain-{number}", len(content)) for number, content in enumerate(contents)]
        assert get_objects(client, "plain", keys, brought) > 0
    assert [(brought / str(number)).read_bytes() for number in range(len(contents))] == contents
