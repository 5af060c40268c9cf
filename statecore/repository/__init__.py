"""Snapshots of application state in an object store, in the format of ``docs/repository-format.md``.

Enter by ``repository.py`` and ``application_repository.py``. Here are the documents and what reads them; ``publish/``
adds snapshots, and ``maintenance/``, which imports it, verifies, forgets, deletes, copies and repairs.
"""
