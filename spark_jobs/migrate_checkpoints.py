"""Spark job: convert the state directory of one application for another release of Kafka Streams.

::

    spark-submit spark_jobs/migrate_checkpoints.py --report report.json \\
        --request '{"application_id": "orders", "state_dir": "/var/lib/kafka-streams", "to": "4.4", "apply": true}'

The request's fields are those of ``statecore.jobs.migrate.request.MigrateRequest``; without ``apply`` the plan is
reported, and nothing is changed. The report, or the error that stopped the job, is written to ``--report`` as one JSON
document; the exit code is the error's.
"""

from __future__ import annotations

import sys

from statecore.progress import MachineProgress

if __name__ == "__main__":
    # Importing the job takes a while; show progress before it.
    MachineProgress().phase("loading")
    from statecore.jobs.program import main
    from statecore.spark.engine import SparkEngine

    sys.exit(main(verb="migrate", spark=SparkEngine))
