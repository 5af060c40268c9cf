"""Restore and advance: stores rebuilt from changelogs, delivered to a state directory, a repository, or both.

Enter by ``run.py``; ``job.py`` has the phases, ``planner.py`` the choices, the sinks the deliveries.
Stands on ``planning`` and ``bases`` (what to read), ``pipeline`` (how), ``statedir.placement``.
"""
