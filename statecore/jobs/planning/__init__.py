"""Planning: which offsets become which stores, frozen before anything is read.

Enter by ``planner.py``, which asks the cluster; ``plan.py`` is pure.
``frozen_plan.py`` has the frozen plan on disk, which a retry reads again, and ``planned_tails.py`` says whether it is
still valid. Imports ``bases``, not ``pipeline``.

==================  ===================================================================================
``ReadPlan``        offset ranges by store partition; pure, and the same for every engine
``NewPlan``         a ``ReadPlan`` with its chosen bases and its notes, as ``planner.py`` makes it
``FrozenPlan``      a ``ReadPlan`` on disk, with the time at which the ends were read
``PlannedTails``    a ``FrozenPlan`` with its bases; ``PlannedRestore`` and ``CheckpointPlan`` are such
``NotedPlan``       what ``--plan`` shows
==================  ===================================================================================
"""
