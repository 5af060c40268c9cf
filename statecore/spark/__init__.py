"""The DataFrames of the jobs: ranges → runs → images → report. Only here PySpark is imported."""
