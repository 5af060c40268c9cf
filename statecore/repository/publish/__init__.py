"""Publication of snapshots beside other writers: uploads, task manifests, one swap of the head.

Enter by ``publication.py``.
"""
