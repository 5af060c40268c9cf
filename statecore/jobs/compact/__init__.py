"""Compaction: adjacent runs of a snapshot are merged, so that a database has few of them.

Enter by ``run.run_compact`` (``repo compact``) or ``run.compact`` (after a checkpoint). ``policy`` decides by sizes
alone, ``planner`` names the runs, ``merge`` does the work. It stands on ``images`` (merging) and ``repository``.
"""
