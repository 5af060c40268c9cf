"""Planning: which offsets become which stores, frozen before anything is read.

Enter by ``planner.py``, which asks the cluster; ``plan.py`` is pure.
``request_files.py`` has the frozen plan on disk, which a retry reads again.
Stands on ``changelog``, ``spec`` and ``bases``.
"""
