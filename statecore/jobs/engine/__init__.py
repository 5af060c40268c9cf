"""Engines: where the tasks of a job run.

Jobs use ``protocol.py`` only: an engine starts workers, which take batches of tasks and return results.
``processes.py`` uses local processes (``worker.py`` is one of them), ``in_process.py`` this process alone;
:mod:`statecore.spark.engine` uses Spark.
"""
