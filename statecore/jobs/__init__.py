"""Jobs: requests, frozen plans, preconditions, phases, retries and reports, whichever engine does the work.

A package a verb (``restore/``, ``checkpoint/``, ...), entered by the function ``run_<verb>`` of its ``run.py``, whose
further arguments are those of ``JobContext.open``; ``program.py`` runs each as a process. A verb is made of these:

- ``fields/`` declares its request, ``context.py`` opens what the request names.
- ``job.py`` records the attempt (``attempt.py``) and its files (``job_home.py``); ``directory_change.py`` is the
  template of jobs that change a directory after an approval.
- ``planning/`` and ``bases/`` decide what is read; ``pipeline/`` has the tasks, which ``engine/`` runs somewhere.
- ``history/`` reads the reports of all jobs.
"""
