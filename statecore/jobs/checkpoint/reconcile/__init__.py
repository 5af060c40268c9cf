"""Compares stores that may have missed deletes with their whole changelogs, and publishes the differences.

``eligible.py`` says which stores can be, and plans the reads of their logs; ``run.py`` is the way in; ``store.py``
compares one store. Imports what ``jobs/checkpoint`` does, and of that package ``plan.py`` alone.
"""
