"""Spark job: compare a state directory with another one, a snapshot, or its changelogs.

::

    spark-submit spark_jobs/diff.py --report report.json \\
        --request '{"spec_path": "stores.yaml", "state_dir": "/var/lib/kafka-streams", "with_changelog": true}'

The request's fields are those of ``statecore.jobs.diff.request.DiffRequest``. The report, or the error that stopped the
job, is written to ``--report`` as one JSON document; the exit code is 0 if every row is equal, 30 to 32 if not
(docs/diff.md), or the error's.
"""

from __future__ import annotations

import sys

from statecore.progress import MachineProgress

if __name__ == "__main__":
    # Importing the job takes a while; show progress before it.
    MachineProgress().phase("loading")
    from statecore.jobs.program import main
    from statecore.spark.engine import SparkEngine

    sys.exit(main(verb="diff", spark=SparkEngine))
