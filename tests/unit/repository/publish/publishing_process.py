"""Publishes tasks, and dies where ``STATECORE_FAULT`` says (``python -m``).

Arguments: URL of the repository, application id, request, directory for runs, and the ends as JSON: by task and store.
Prints the snapshot as JSON. It is what a driver does, without what it publishes being rows.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from statecore.faults import fault_points_from_environment
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.publish.publication import Publication, Published
from tests.unit.repository.snapshots import Ends, spec, uploaded


def publish(url: str, application_id: str, request: str, directory: Path, ends: Ends) -> Published:
    """Publish what a request asks for, or find that it is published."""
    app_repository = ApplicationRepository.open(url, application_id)
    begun = Publication(
        app_repository,
        spec(application_id=application_id),
        request=request,
        origin="tests",
        clock=time.time,
        faults=fault_points_from_environment(),
    )
    done = begun.earlier() or begun.publish(uploaded(app_repository, directory, ends), drops_other_tasks=False)
    assert done is not None
    return done


if __name__ == "__main__":
    print(json.dumps(asdict(publish(*sys.argv[1:4], Path(sys.argv[4]), json.loads(sys.argv[5])))))
