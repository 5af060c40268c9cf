"""Pipeline: the two stages of a build, as tasks that can be repeated: ranges to runs, runs to images.

Enter by ``read_stage.py`` and ``build_stage.py``; workers run the modules that end in ``_tasks``.
``staging.py`` and ``staging_place.py`` say where results are, so that a retry finds them.
``tail_check.py`` says whether what was read may be appended. Imports ``bases`` and ``planning``, and no verb.
"""
