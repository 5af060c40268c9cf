"""Spark as an engine of jobs, and the programs that ``spark-submit`` runs; the only package that imports PySpark."""
