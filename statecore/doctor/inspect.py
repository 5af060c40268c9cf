"""What lies in an application's state directory, looked at without changing anything, also while it runs.

Everything that would surprise somebody tomorrow is named: a database that cannot be opened, offsets that are missing or
contradict each other, a store that was not closed, files that decide more than one would think. These are the findings
of the doctor (:mod:`statecore.doctor.doctor`), as far as one look tells them.
"""

from __future__ import annotations

from collections.abc import Sequence

from statecore.doctor.checks.context import CheckContext
from statecore.doctor.database_inspection import Depth
from statecore.doctor.inspection_reader import look
from statecore.doctor.run_checks import run_checks
from statecore.doctor.views import Inspection
from statecore.spec.model import ApplicationSpec
from statecore.statedir.state_directory import StateDirectory


def inspect(
    directory: StateDirectory,
    *,
    spec: ApplicationSpec | None = None,
    tasks: Sequence[str] = (),
    stores: Sequence[str] = (),
    estimate: bool = False,
) -> Inspection:
    """Look at an application's directory.

    Args:
        directory: it.
        spec: what is declared; kinds come from it then, and differences are trouble.
        tasks: only these tasks; all without.
        stores: only these stores; all without.
        estimate: take RocksDB's estimate for the numbers of rows instead of counting, which reads everything.

    Raises:
        NotFound: a task or store that was named is not there.
        Invalid: the directory may not be read.
    """
    sight = look(directory, spec=spec, tasks=tasks, stores=stores, depth=Depth(count=not estimate))
    guarantee = None if spec is None else spec.processing_guarantee
    how = CheckContext(
        directory.application_id, guarantee, spec=spec, now_ms=sight.read_at_ms, transactional=sight.transactional
    )
    seen, beyond = run_checks(sight, how)
    return Inspection(
        directory.application_id, directory.path, sight.holder, estimate, seen, sight.leftovers, tuple(beyond)
    )
