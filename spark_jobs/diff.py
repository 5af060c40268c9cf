"""Spark job: hold a state directory against another one, a snapshot, or its changelogs.

::

    spark-submit spark_jobs/diff.py --report report.json \\
        --request '{"spec_path": "stores.yaml", "state_dir": "/var/lib/kafka-streams", "with_changelog": true}'

The request's fields are those of ``statecore.jobs.diff.request.DiffRequest``. The report, or the error that stopped the
job, is written to ``--report`` as one JSON document; the exit code is 0 where every row is equal, 30 to 32 where not
(docs/diff.md), or the error's.
"""

from __future__ import annotations

import sys

from statecore.progress import MachineProgress

if __name__ == "__main__":
    # Loading all that a comparison needs takes a while, and whoever looks at the task should see that it is alive.
    MachineProgress().phase("loading")
    from statecore.spark.diff_job import main

    sys.exit(main())
