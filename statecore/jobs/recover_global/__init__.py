"""Recovery of global stores: rebuilds those that would stop the application, and keeps the others.

Enter by ``run.py``. It is a repair (``repair/``) of the directory ``global``; ``planner.py`` adds checks of its own.
"""
