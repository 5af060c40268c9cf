"""What jobs have done, read from their reports and from what they left in a state directory.

``instance_history.read_history`` reads one directory, ``report_index.ReportIndex`` a directory of reports (Airflow's).
Nothing is written but the index, which is a cache. It imports no job, only the reports of jobs.
"""
