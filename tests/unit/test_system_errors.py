"""What the system refuses becomes one of this library's kinds, the same in every room."""

from __future__ import annotations

import errno
import os

import pytest

from statecore.errors import Capacity, Invalid, Retryable, StatecoreError
from statecore.filesystem import READ_ONLY_ACTION
from statecore.system_errors import Cause, cause_of, system_error

ACTION = "Name another."


@pytest.mark.parametrize(
    ("number", "refusal", "kind", "code", "action"),
    [
        (errno.ENOSPC, Cause.FULL, Capacity, "no-space", "Make room."),
        (errno.EDQUOT, Cause.FULL, Capacity, "no-space", "Make room."),
        (errno.EMFILE, Cause.TOO_MANY_FILES, Capacity, "too-many-open-files", "ulimit"),
        (errno.ENFILE, Cause.TOO_MANY_FILES, Capacity, "too-many-open-files", "ulimit"),
        (errno.EFBIG, Cause.TOO_LARGE, Capacity, "file-too-large", "ulimit -f"),
        (errno.EROFS, Cause.READ_ONLY, Invalid, "read-only-file-system", READ_ONLY_ACTION),
        (errno.EACCES, Cause.DENIED, Invalid, "permission-denied", ACTION),
        (errno.EPERM, Cause.DENIED, Invalid, "permission-denied", ACTION),
        (errno.EIO, Cause.FAILED, Retryable, "disk-failed", "dmesg"),
        (errno.ESTALE, Cause.UNREACHABLE, Retryable, "disk-failed", "server"),
        (errno.ETIMEDOUT, Cause.UNREACHABLE, Retryable, "disk-failed", "server"),
        (errno.ENOLCK, Cause.UNREACHABLE, Retryable, "disk-failed", "server"),
        (errno.EREMOTEIO, Cause.UNREACHABLE, Retryable, "disk-failed", "server"),
        (errno.EISDIR, Cause.OTHER, Invalid, "system-refused", ACTION),
    ],
)
def test_kind_and_action_follow_from_why_the_system_refused(
    number: int, refusal: Cause, kind: type[StatecoreError], code: str, action: str
) -> None:
    said = os.strerror(number)
    for error in (OSError(number, said), Exception(f"IO error: While open a file: /d/000001.sst: {said}")):
        assert cause_of(error) is refusal
        found = system_error(error, "/d/file could not be written", action=ACTION, room="Make room.", file="/d/file")
        assert (type(found), found.code) == (kind, code)
        assert found.what.startswith("/d/file ")
        assert found.what.endswith(f"{said}.")
        assert action in found.action
        assert found.context == {"file": "/d/file"}


def test_an_error_without_number_and_words_is_none_that_is_known() -> None:
    assert cause_of(OSError("broken")) is Cause.OTHER
    assert system_error(OSError("broken"), "It failed", action=ACTION).what == "It failed: broken."
