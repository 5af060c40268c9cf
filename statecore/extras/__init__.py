"""The optional packages of each extra, and the error for an extra that is not installed.

``pip install .`` installs what the stores need; each extra of ``pyproject.toml`` adds the packages of one use
(:data:`EXTRAS`). A module that needs packages of the pipeline imports ``statecore.extras.pipeline`` first. Its error
names the extra to install, not one of six missing packages.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

from statecore.errors import Invalid

EXTRAS: dict[str, tuple[str, ...]] = {
    "pipeline": ("cramjam", "llvmlite", "numba", "numpy", "pyarrow"),
    "oauth": ("requests",),
    "msk": ("aws_msk_iam_sasl_signer",),
    "s3": ("boto3", "botocore"),
    "encryption": ("cryptography",),
    "spark": ("pyspark", "py4j"),
    "airflow": ("airflow",),
    "metrics": ("opentelemetry",),
}
"""Extra → the packages that its own part of the library imports."""


class MissingExtra(Invalid, ModuleNotFoundError):
    """Packages of an extra are not installed.

    An ``Invalid`` for operators, a ``ModuleNotFoundError`` for code that tries an import and goes on without it.

    Args:
        extra: the extra.
        packages: those of its packages that are missing.
    """

    def __init__(self, extra: str, *packages: str) -> None:
        lacking = f"{', '.join(packages)} {'is' if len(packages) == 1 else 'are'} missing"
        super().__init__(
            f"This needs the extra {extra!r} of statecore, which is not installed ({lacking}).",
            code="extra-missing",
            action=f"Install it into this environment, in a checkout of statecore: pip install '.[{extra}]'.",
            extra=extra,
            packages=list(packages),
            python=sys.executable,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return (MissingExtra, (self.context["extra"], *self.context["packages"]))


def is_installed(extra: str) -> bool:
    """Whether the packages of an extra are there; none of them is imported."""
    return not _missing(extra)


def require(extra: str) -> None:
    """Go on only where the packages of an extra are there; none of them is imported."""
    missing = _missing(extra)
    if missing:
        raise MissingExtra(extra, *missing)


def explained(error: ModuleNotFoundError) -> MissingExtra | None:
    """The same error with the extra that brings what is missing; ``None`` where no extra does."""
    if isinstance(error, MissingExtra):
        return error
    package = (error.name or "").partition(".")[0]
    return next((MissingExtra(extra, package) for extra, names in EXTRAS.items() if package in names), None)


def _missing(extra: str) -> list[str]:
    return [package for package in EXTRAS[extra] if find_spec(package) is None]
