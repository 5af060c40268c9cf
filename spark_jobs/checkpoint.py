"""Spark job: advance the newest snapshot of one application by the tails of its changelogs.

::

    spark-submit spark_jobs/checkpoint.py --report report.json \\
        --request '{"spec_path": "stores.yaml", "repository": "s3://bucket/prefix"}'

The request's fields are those of ``statecore.jobs.checkpoint.request.CheckpointRequest``. The report, or the error that
stopped the job, is written to ``--report`` as one JSON document; the exit code is the error's.
"""

from __future__ import annotations

import sys

from statecore.progress import MachineProgress

if __name__ == "__main__":
    # Loading all that a checkpoint needs takes a while, and whoever looks at the task should see that it is alive.
    MachineProgress().phase("loading")
    from statecore.spark.checkpoint_job import main

    sys.exit(main())
