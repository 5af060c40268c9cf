"""Backup: publishes the files of a state directory as a snapshot, and builds nothing.

Enter by ``run.py``: its phases are link, changelog_check, files, newest_snapshot, task_manifests.
Stands on ``repository`` and on the RocksDB checkpoints of ``stores.rocksdb``.
"""
