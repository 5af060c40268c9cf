"""Diff: compares a state directory with another one, a snapshot or its changelogs, row by row.

Enter by ``run.py``, which names the module of each phase. It stands on ``fetch/`` and ``restore/``, which build what
the directory is compared with.
"""
