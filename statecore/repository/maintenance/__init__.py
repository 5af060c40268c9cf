"""What keeps a repository for years: verification, retention, collection of garbage, copies, repair of the head.

A command of ``statecore repo`` each: ``verify.py``, ``pins.py``, ``forget.py``, ``collection.py`` and ``repack.py``
(prune), ``copier.py``, ``promotion.py``, ``head_repair.py``, ``key_rotation.py``.
"""
