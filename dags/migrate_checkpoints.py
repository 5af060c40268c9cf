"""
### Upgrade or downgrade the state directories of Kafka Streams applications

Converts state directories so that another release of Kafka Streams opens them with nothing left to restore. The current
release is detected.

**Stop the applications first**, and keep them stopped until the run has ended. The run takes the applications' lock; if
another process holds it, the run is refused and names that process.

| task | what it does |
| --- | --- |
| `read_directories` | checks the parameters; one entry for each state directory |
| `plan` | one for each directory: what would be done to each store, or why it cannot be done; nothing is changed |
| `approve` | shows all plans as one page and waits for a person: *Required Actions*. No answer in time rejects |
| `migrate.apply` | one for each directory: applies the approved plan |
| `migrate.verify` | one for each directory: inspects it again; nothing may be left to do |
| `outcome` | the outcome of each directory; fails if one was not changed as planned |

**A directory that is refused fails by itself**, with the reasons in the log of its `plan`; the others continue. If
there is nothing to do, `approve` is skipped and logs why. With the parameter `approve` set to `none` plans are applied
without approval.

**The approval is of the plan's id.** A directory that has changed since has another plan, and is refused. A directory
is migrated completely or not at all: copies are converted and verified before any replaces the original. Retries and
cleared tasks resume from there.

The worker needs access to the directories; with the engine `spark` its executors too. *Operating it in Airflow*
(`docs/airflow.md`) describes every setting.
"""

from __future__ import annotations

import os
from pathlib import Path

from statecore.airflow.directory_change.dag import directory_change_dag

# Next to this file's folder, so that a versioned Dag bundle uses the jobs of the same commit.
JOBS = Path(os.environ.get("STATECORE_SPARK_JOBS") or Path(__file__).resolve().parents[1] / "spark_jobs")

dag = directory_change_dag("migrate", __doc__, application=str(JOBS / "migrate_checkpoints.py"))
