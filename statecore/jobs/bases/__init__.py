"""Bases: stores of a snapshot or a directory, above which only the tail of a changelog is read.

Enter by ``base.py``; ``choice.py`` chooses one, by ``changelog.soundness``.
The lowest of three: ``planning`` and ``pipeline`` import it, and it imports neither.
"""
