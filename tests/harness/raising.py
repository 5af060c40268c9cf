"""Expect an error by its kind, its code and the values of its context; sentences are free to change."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from statecore.errors import StatecoreError


@contextmanager
def raises(kind: type[StatecoreError], code: str, /, **context: Any) -> Iterator[pytest.ExceptionInfo[StatecoreError]]:
    """Pass when the block raises an error of that very kind and code whose context has these values.

    Args:
        kind: the class of the error.
        code: its code.
        context: values that its context must have; it may have more.
    """
    with pytest.raises(kind) as caught:
        yield caught
    assert caught.value.code == code, caught.value
    assert {name: caught.value.context.get(name) for name in context} == context


def code_said(err: str) -> str:
    """The code of the error that a command told on stderr; empty where it told none."""
    found = re.search(r"^statecore: \[([a-z0-9-]+)\] ", err, re.MULTILINE)
    return found[1] if found else ""
