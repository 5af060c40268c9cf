"""Checkpoint: the newest snapshot, advanced by the tails of the changelogs.

Enter by ``run.run_checkpoint``, whose phases are modules; ``service`` repeats it, and ``schedule`` decides for which
applications Airflow starts it. It stands on ``jobs/bases`` (what may be advanced), ``jobs/pipeline`` (reading) and
``repository`` (publishing).
"""
