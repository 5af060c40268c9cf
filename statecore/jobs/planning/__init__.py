"""Planning: which offsets become which stores, frozen before anything is read.

Enter by ``planner.py``, which asks the cluster; ``plan.py`` is pure.
``frozen_plan.py`` has the frozen plan on disk, which a retry reads again, and ``planned_tails.py`` says whether it is
still valid. Imports ``bases``, not ``pipeline``.
"""
