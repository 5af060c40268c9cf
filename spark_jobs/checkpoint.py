"""Spark job: append the tails of the changelogs of one application to its newest snapshot.

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
    # Importing the job takes a while; show progress before it.
    MachineProgress().phase("loading")
    from statecore.jobs.program import main
    from statecore.spark.engine import SparkEngine

    sys.exit(main(verb="checkpoint", spark=SparkEngine))
