"""Spark job: rebuild stores of one application from its changelogs.

::

    spark-submit spark_jobs/restore.py --report report.json \\
        --request '{"spec_path": "stores.yaml", "state_dir": "/var/lib/kafka-streams"}'

The request's fields are those of ``statecore.jobs.restore.request.RestoreRequest``. The report, or the error that
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

    sys.exit(main(verb="restore", spark=SparkEngine))
