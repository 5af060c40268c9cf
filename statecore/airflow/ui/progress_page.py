"""The page *Statecore progress*: progress of the jobs of one run (a tab of its page) or of all running jobs.

The page contains no data. Its script calls Airflow's public REST API with the reader's cookie, so it shows nothing that
the reader may not see, and reads the progress in the task state store (``job_progress.py``). The script sets content as
text, never as markup.
"""

from __future__ import annotations

from fastapi.responses import HTMLResponse

from statecore.airflow.job_progress import PROGRESS_KEY
from statecore.airflow.ui.pages import protected_app, render

OPERATORS = ("StatecoreSparkOperator", "StatecoreCheckpointOperator", "StatecoreDirectoryChangeOperator")
"""Class names of the operators whose tasks are shown; not imported, because the API server has no Spark."""

APPROVALS = ("DirectoryChangeApproval", "CollectionApproval")
"""Class names of those that wait for a person; shown as well, because nothing else happens in their run meanwhile."""

TITLE = "Statecore progress"
"""Name of the page, of the tab of a run, and of the entry in the menu *Browse*."""

app = protected_app(TITLE)


@app.get("/", response_class=HTMLResponse)
def page() -> HTMLResponse:
    """The page for the run in its address (``?dag_id=…&run_id=…``), without one for all running jobs."""
    return render("progress.html", title=TITLE, operators=OPERATORS, approvals=APPROVALS, progress_key=PROGRESS_KEY)
