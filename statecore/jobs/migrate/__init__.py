"""Migration: converts a state directory for another release of Kafka Streams.

Enter by ``run.py``, which names the module of each phase. It stands on ``conversion/`` (plan and conversion of one
task) and ``directory_change.py`` (lock, approval, resumption).
"""
