"""Folds, and dies where ``STATECORE_FAULT`` says: ``python -m tests.unit.jobs.compacting_process``.

Arguments: the directory of the application, and the URL of its repository. Its one store is a plain key-value store.
"""

from __future__ import annotations

import sys
from pathlib import Path

from statecore.faults import fault_points_from_environment
from statecore.formats.kinds import StoreKind
from tests.unit.jobs.compact.compacting import Farm, spec_of

if __name__ == "__main__":
    Farm(Path(sys.argv[1]), spec_of({"plain": StoreKind.KEY_VALUE}), sys.argv[2]).fold(
        faults=fault_points_from_environment()
    )
