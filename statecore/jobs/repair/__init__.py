"""Repair: fixes the findings of a diagnosis in a state directory, and verifies the result.

Enter by ``run.py``, which names the module of each phase. It stands on ``doctor/`` (findings and repairs), ``restore/``
(rebuilds) and ``directory_change.py`` (lock, approval, resumption).
"""
