"""Bases: stores of a snapshot or a directory, above which only the tail of a changelog is read.

Enter by ``base.py``; ``choice.py`` chooses one, ``tail_check.py`` validates it after the read.
``planned_tails.py`` says whether a frozen plan is still valid.
Stands on ``changelog.soundness`` and on manifests of ``repository``.
"""
