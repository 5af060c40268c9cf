"""Imported first by every module that imports a package of the extra ``pipeline``: Arrow, NumPy, Numba, the codecs.

Raises:
    MissingExtra: they are not installed.
"""

from __future__ import annotations

from statecore.extras import require

require("pipeline")
