"""HTML of the page *State stores*, which is shown in a frame of the UI with its theme; all content is escaped.

It is written for a person on call: the last written application comes first, failures and unfinished attempts come
before older successes, and every run links to its task in Airflow.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from urllib.parse import urlencode

from statecore.airflow.ui.state_view import (
    PARTITIONS_A_PAGE,
    REPORTS_A_PAGE,
    ApplicationPage,
    Filter,
    run_of,
)
from statecore.airflow.ui.store_style import SCRIPT, STYLE
from statecore.errors import kind_and_code
from statecore.formats.kinds import StoreKind
from statecore.jobs.attempt import Instance, age, moment
from statecore.jobs.history.report_head import Outcome, ReportHead, RestoredPartition
from statecore.jobs.history.report_index import ApplicationReports, InstanceReports
from statecore.jobs.history.restored_store import RestoredStore, restored_stores

NOT_COUNTED = "not counted"
"""Row count of stores that a job has published without building their images."""

_OUTCOMES = {Outcome.UNCHANGED: "nothing new"}
"""Labels of outcomes that differ from the report's."""

_STATES = {
    "": "all",
    "restored": "restored last",
    "published": "published last",
    "unchanged": "nothing new last",
    "failed": "failed last",
    "begun": "no end reported",
}


def document(body: str, nonce: str) -> str:
    """The whole document; only its own style and script run, by ``nonce``."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>State stores</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<style nonce="{nonce}">{STYLE}</style><script nonce="{nonce}">{SCRIPT}</script></head>'
        f"<body><main>{body}</main></body></html>"
    )


def overview(shown: ApplicationPage, wanted: Filter, airflow: str) -> str:
    body = "".join(_application(one, airflow) for one in shown.applications)
    if not body:
        body = EMPTY if wanted.is_empty else NOTHING_FOUND
    asked = {"q": wanted.text, "state": wanted.outcome or ""}
    return f"<h1>State stores</h1>{_form(wanted)}{body}{_pager('./', asked, shown.number, shown.pages)}"


def details(name: str, one: InstanceReports, number: int, airflow: str) -> str:
    """One instance: every store partition, and every attempt."""
    pages = max(-(-len(one.partitions) // PARTITIONS_A_PAGE), -(-len(one.attempts) // REPORTS_A_PAGE), 1)
    number = min(number, pages)
    partitions = one.partitions[(number - 1) * PARTITIONS_A_PAGE : number * PARTITIONS_A_PAGE]
    attempts = one.attempts[(number - 1) * REPORTS_A_PAGE : number * REPORTS_A_PAGE]
    body = f'<p><a href="./">State stores</a></p>{_heading(one, "h1")}{_state(one, airflow)}'
    if partitions:
        body += f"<h2>Store partitions</h2>{_partitions(partitions, _dated(one), airflow)}"
    if attempts:
        body += f"<h2>Attempts, newest first</h2>{_attempts(attempts, airflow)}"
    return body + _pager("instance", {"name": name, **_query(one.instance)}, number, pages)


def absent(instance: Instance) -> str:
    """The page of an instance without reports."""
    return (
        f'<p><a href="./">State stores</a></p>{_place(instance, "h1")}'
        "<p>This instance has no report: it may have been deleted, or be older than the reports that are kept.</p>"
    )


def _form(wanted: Filter) -> str:
    options = "".join(
        f'<option value="{value}"{" selected" if value == (wanted.outcome or "") else ""}>{label}</option>'
        for value, label in _STATES.items()
    )
    return (
        '<form method="get" action="./" role="search">'
        f'<input type="search" name="q" value="{escape(wanted.text)}" aria-label="Filter" '
        'placeholder="application, host or directory" maxlength="200">'
        f'<select name="state" aria-label="State">{options}</select><button>Filter</button></form>'
    )


def _pager(address: str, asked: dict[str, str], number: int, pages: int) -> str:
    if pages == 1:
        return ""
    query = {key: value for key, value in asked.items() if value}

    def link(to: int, label: str) -> str:
        if not 1 <= to <= pages:
            return f"<span>{label}</span>"
        return f'<a href="{address}?{escape(urlencode({**query, "page": to}))}">{label}</a>'

    return f"<nav>{link(number - 1, '← newer')} page {number} of {pages} {link(number + 1, 'older →')}</nav>"


def _application(one: ApplicationReports, airflow: str) -> str:
    instances = "".join(_instance(one.name, instance, airflow) for instance in one.instances)
    if one.unreadable:
        title = "" if one.instances else f"<h2>{escape(one.name)}</h2>"
        files = _count(len(one.unreadable), "file")
        names = ", ".join(one.unreadable[:3]) + (", …" if len(one.unreadable) > 3 else "")
        instances += (
            f'<section>{title}<p class="note">{files} of {escape(one.name)} could not be read as a report: '
            f"{escape(names)}. The API server's log says why.</p></section>"
        )
    return instances


def _instance(name: str, one: InstanceReports, airflow: str) -> str:
    link = f"instance?{escape(urlencode({'name': name, **_query(one.instance)}))}"
    partitions = [_count(len(one.partitions), "partition")] if one.partitions else []
    more = ", ".join([*partitions, _count(len(one.attempts), "attempt")])
    return (
        f"<section>{_heading(one, 'h2')}{_state(one, airflow)}"
        f"{_stores(one.partitions, _dated(one), airflow)}"
        f'<p class="facts"><a href="{link}">{more}</a></p></section>'
    )


def _heading(one: InstanceReports, tag: str) -> str:
    """The application and the location of its stores: a state directory, or a repository only."""
    if not _is_of_repository(one):
        return _place(one.instance, tag)
    published, host = one.last_published, f"<strong>{escape(one.instance.host)}</strong>"
    if one.instance.application_id.startswith("/"):
        facts = f"the path of a spec, which cannot be used on {host}"
    elif published is None:
        facts = f"jobs on {host} without a state directory have published no snapshot"
    else:
        where = f"to <code>{escape(published.repository)}</code>"
        facts = f"published {where}, by jobs on {host} without a state directory"
    return f'<{tag}>{escape(one.instance.application_id)}</{tag}><p class="facts">{facts}</p>'


def _dated(one: InstanceReports) -> str:
    """Column heading of a store's time: stores in a repository stay current while there are no new records."""
    return "As of" if _is_of_repository(one) else "Restored"


def _is_of_repository(one: InstanceReports) -> bool:
    """Whether the jobs have no state directory; not known for reports of version 1, which have no host."""
    return not one.instance.state_dir and bool(one.instance.host)


def _place(instance: Instance, tag: str) -> str:
    host = f"<strong>{escape(instance.host)}</strong>" if instance.host else "an unknown host"
    where = f"<code>{escape(instance.state_dir)}</code>" if instance.state_dir else "an unknown directory"
    return f'<{tag}>{escape(instance.application_id)}</{tag}><p class="facts">on {host} in {where}</p>'


def _query(instance: Instance) -> dict[str, str]:
    return {"application": instance.application_id, "host": instance.host, "state_dir": instance.state_dir}


def _state(one: InstanceReports, airflow: str) -> str:
    """The latest attempt, and the latest success if that is another one."""
    last, success = one.last, one.last_succeeded
    alert = ""
    if last.outcome is Outcome.FAILED:
        error = {name: escape(last.error.get(name, "")) for name in ("what", "action", "phase")}
        phase = f" in phase {error['phase']}" if error["phase"] else ""
        lines = escape(last.error.get("what", "")).replace("\n", "<br>")
        alert = (
            f'<div class="failure" role="alert"><p><strong>The latest attempt failed</strong> {_ago(last.when)}{phase}'
            f"{_by(last, airflow)}</p><p>{escape(kind_and_code(last.error))}: {lines}</p><p>{error['action']}</p></div>"
        )
    elif last.outcome is Outcome.BEGUN:
        alert = (
            f'<div class="note" role="status"><p><strong>An attempt began</strong> {_ago(last.when)}'
            f"{_by(last, airflow)}, and its end was not reported: it is running, or was killed.</p></div>"
        )
    if success is None:
        planned = last.outcome is Outcome.PLANNED
        never = "None of these jobs has published a snapshot." if _is_of_repository(one) else "Never restored before."
        nothing = "Only planned, nothing was changed." if planned else never
        return alert + f'<p class="facts">{nothing}</p>'
    done = _OUTCOMES.get(success.outcome, str(success.outcome))
    facts = (
        f"{done.capitalize() if success is last else f'Before that, {done}'} {_ago(success.when)}"
        f"{_by(success, airflow)} in {success.seconds:,.1f} s{_snapshot(success)}"
    )
    published = one.last_published
    if success.outcome is Outcome.UNCHANGED and published is not None:
        facts += f"; the newest snapshot is <code>{escape(published.snapshot)}</code>, published {_ago(published.when)}"
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in success.notes)
    return f"{alert}<p>{facts}</p>{notes}"


def _snapshot(head: ReportHead) -> str:
    """The snapshot that an attempt has published, with its repository unless the heading has it."""
    if not head.snapshot:
        return ""
    where = f" to <code>{escape(head.repository)}</code>"
    if head.outcome is Outcome.PUBLISHED:
        return f"{where}: snapshot <code>{escape(head.snapshot)}</code>"
    return f", and published{where}: snapshot <code>{escape(head.snapshot)}</code>"


def _by(head: ReportHead, airflow: str) -> str:
    """The user and the Airflow run of an attempt, as a link."""
    request = head.attempt.request_id
    user = f" by {escape(head.attempt.user)}" if head.attempt.user else ""
    named = _run(request, airflow)
    return f"{user}, run {named}" if run_of(request) else f"{user}, {named}" if named else user


def _run(request_id: str, airflow: str) -> str:
    run = run_of(request_id)
    if run is None:
        return f"request <code>{escape(request_id)}</code>" if request_id else ""
    title = f"{run.dag_id}, task {run.task_id} [{run.map_index}]"
    return f'<a data-airflow href="{escape(airflow + run.path)}" title="{escape(title)}">{escape(run.run_id)}</a>'


def _stores(partitions: Iterable[RestoredPartition], dated: str, airflow: str) -> str:
    rows = "".join(_store(one, airflow) for one in restored_stores(list(partitions)))
    heads = (
        '<th scope="col">Store</th><th scope="col">Kind</th><th scope="col" class="n">Partitions</th>'
        '<th scope="col" class="n">Rows</th><th scope="col" class="n">Committed offset</th>'
        f'<th scope="col" class="n">Lag then</th><th scope="col">{dated}</th><th scope="col">Digest</th>'
        '<th scope="col">Run</th>'
    )
    return _table(heads, rows)


def _store(one: RestoredStore, airflow: str) -> str:
    ages = _ago(one.newest)
    if one.oldest[:19] != one.newest[:19]:
        ages += f", some partitions {_ago(one.oldest)}"
    runs = _run(one.request_ids[0], airflow)
    if len(one.request_ids) > 1:
        runs += f" and {len(one.request_ids) - 1} more"
    return (
        f'<tr><td>{escape(one.store)}</td><td>{escape(one.kind)}</td><td class="n">{one.partitions:,}</td>'
        f'<td class="n">{_number(one.rows)}</td><td class="n">{_offsets(one)}</td><td class="n">{one.tail_left:,}</td>'
        f"<td>{ages}</td><td>{_digest(one.digest)}</td><td>{runs}</td></tr>"
    )


def _offsets(one: RestoredStore) -> str:
    low, high = min(one.offsets, default=-1), max(one.offsets, default=-1)
    offsets = [] if low < 0 else [f"{low:,}" if low == high else f"{low:,} to {high:,}"]
    if one.unknown:
        unknown = _unknown(one.kind)
        offsets.append(unknown if not offsets else f"{one.unknown} {unknown}")
    return ", ".join(offsets)


def _unknown(kind: str) -> str:
    return "restored by Kafka Streams" if kind == StoreKind.VERSIONED_KEY_VALUE else "empty changelog"


def _partitions(partitions: Iterable[RestoredPartition], dated: str, airflow: str) -> str:
    heads = (
        '<th scope="col">Task</th><th scope="col">Store</th><th scope="col">Kind</th>'
        '<th scope="col" class="n">Partition</th><th scope="col" class="n">Rows</th>'
        '<th scope="col" class="n">Records read</th><th scope="col" class="n">Committed offset</th>'
        f'<th scope="col" class="n">Lag then</th><th scope="col">{dated}</th><th scope="col">Digest</th>'
        '<th scope="col">Run</th>'
    )
    return _table(heads, "".join(_partition(one, airflow) for one in partitions))


def _partition(one: RestoredPartition, airflow: str) -> str:
    partition = "all" if one.partition < 0 else str(one.partition)
    if one.offsets:
        offset = ", ".join(f"{number}: {value:,}" for number, value in one.offsets.items())
    else:
        offset = _unknown(one.kind) if one.committed_offset < 0 else f"{one.committed_offset:,}"
    return (
        f"<tr><td>{escape(one.task)}</td><td>{escape(one.store)}</td><td>{escape(one.kind)}</td>"
        f'<td class="n">{partition}</td><td class="n">{_number(one.rows)}</td><td class="n">{one.records:,}</td>'
        f'<td class="n">{escape(offset)}</td><td class="n">{one.tail_left:,}</td><td>{_ago(one.when)}</td>'
        f"<td>{_digest(one.digest)}</td><td>{_run(one.request_id, airflow)}</td></tr>"
    )


def _attempts(attempts: Iterable[ReportHead], airflow: str) -> str:
    heads = (
        '<th scope="col">When</th><th scope="col">Outcome</th><th scope="col" class="n">Stores</th>'
        '<th scope="col" class="n">Partitions</th><th scope="col" class="n">Rows</th>'
        '<th scope="col" class="n">Seconds</th><th scope="col">Plan</th><th scope="col">User</th>'
        '<th scope="col">Run</th><th scope="col">Message</th>'
    )
    return _table(heads, "".join(_attempt(one, airflow) for one in attempts))


def _attempt(one: ReportHead, airflow: str) -> str:
    numbers = (one.stores, one.partitions, one.rows)
    cells = "".join(f'<td class="n">{_number(number)}</td>' if one.succeeded else "<td></td>" for number in numbers)
    seconds = f"{one.seconds:,.1f}" if one.succeeded else ""
    message = f"{kind_and_code(one.error)}: {one.error.get('what', '')}" if one.error else " ".join(one.notes)
    if one.snapshot:
        message = f"Snapshot {one.snapshot} in {one.repository}. {message}".rstrip()
    outcome = (
        "already in place"
        if one.outcome is Outcome.RESTORED and not one.placed
        else _OUTCOMES.get(one.outcome, str(one.outcome))
    )
    return (
        f'<tr class="{one.outcome}"><td>{_time(one.when)}</td><td>{outcome}</td>{cells}<td class="n">{seconds}</td>'
        f"<td><code>{escape(one.plan_id)}</code></td><td>{escape(one.attempt.user)}</td>"
        f'<td>{_run(one.attempt.request_id, airflow)}</td><td class="said">{escape(message)}</td></tr>'
    )


def _table(heads: str, rows: str) -> str:
    if not rows:
        return ""
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'


def _number(number: int) -> str:
    return f"{number:,}" if number >= 0 else NOT_COUNTED


def _digest(digest: str) -> str:
    if not digest:
        return NOT_COUNTED
    return f'<code title="{escape(digest)}">{escape(digest[:12])}</code>'


def _time(when: str) -> str:
    found = moment(when)
    if found is None:
        return escape(when)
    return f'<time datetime="{found.isoformat()}">{found:%Y-%m-%d %H:%M:%S}Z</time>'


def _ago(when: str) -> str:
    """How long ago it was, with the time as tooltip."""
    found = moment(when)
    if found is None:
        return escape(when)
    return f'<time datetime="{found.isoformat()}" title="{found:%Y-%m-%d %H:%M:%S} UTC">{age(found)}</time>'


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


EMPTY = """<section class="empty"><h2>No store was restored yet</h2>
<p>Trigger the Dag <code>restore_stores</code>, <code>snapshot_state</code> or <code>checkpoint_stores</code>.
The reports of its jobs are shown here.</p></section>"""

NOTHING_FOUND = """<section class="empty"><h2>Nothing found</h2>
<p>No instance matches this filter. <a href="./">Show all</a></p></section>"""
