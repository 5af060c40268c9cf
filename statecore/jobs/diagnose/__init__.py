"""Diagnosis: reports the findings in application directories, without an engine or a stored report.

Enter by ``run.py``. It stands on ``doctor/``, which makes the findings; repairs use it, too.
"""
