# ruff: noqa
"""The broker of the integration tests."""

from tests.conftest import broker  # noqa: F401
