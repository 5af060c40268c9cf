"""Writes ``docs/errors.md``, the table of all error codes: ``python -m scripts.error_reference``."""

from __future__ import annotations

from pathlib import Path

from statecore.error_codes import ERROR_CODES, REASON_CODES
from statecore.errors import Capacity, Corrupted, Fenced, Invalid, NotFound, Retryable, StatecoreError

PAGE = Path(__file__).resolve().parents[1] / "docs" / "errors.md"

_KINDS: dict[type[StatecoreError], str] = {
    Retryable: "Something outside was not there in time. The same call may succeed later; Airflow retries it soon.",
    Fenced: "Another process owns what the call wanted to change. Stop that process, or this one.",
    Corrupted: "Bytes are not what they must be. Nothing was replaced by them.",
    Invalid: "The request, the spec or the target is wrong. Nothing was changed.",
    NotFound: "What was named was looked for and does not exist.",
    Capacity: "Disk, memory or time is not enough. Nothing was changed; Airflow retries it late.",
    StatecoreError: "A defect of statecore. Report it with the trace.",
}


def page() -> str:
    """The whole page."""
    lines = [
        "# Error codes\n",
        "Every error has a kind, which gives the exit code, and a code. Codes are stable: match them, not sentences.",
        "With `--json`, in reports, and in what Airflow logs, an error is",
        '`{"error": kind, "code": …, "exit_code": …, "what": …, "action": …, "context": {…}}`;',
        "`context` names task, store, topic, partition and offset where there are any. It is of this one shape",
        "whatever ended the command; `request_id` is beside these where the command can be gone on with.\n",
        "This page is generated from `statecore/error_codes.py` (`python -m scripts.error_reference`).",
    ]
    for kind, meaning in _KINDS.items():
        codes = sorted(code for code, (of, _) in ERROR_CODES.items() if of is kind)
        lines += [
            f"\n## {kind.__name__} (exit code {kind.exit_code})\n",
            f"{meaning}\n",
            "| code | meaning |",
            "|---|---|",
        ]
        lines += [f"| `{code}` | {ERROR_CODES[code][1]} |" for code in codes]
    lines += [
        "\n## Reasons\n",
        "Why a task, store, base, snapshot or checkpoint is refused, passed over or chosen. A reason has no exit code:",
        'reports, `--json` and the `problems` of an error have it as `{"code": …, "what": …}`. Where an error says the',
        "same, the reason has the error's code; these are the others:\n",
        "| code | meaning |",
        "|---|---|",
        *(f"| `{code}` | {meaning} |" for code, meaning in sorted(REASON_CODES.items())),
        "\nFindings of `doctor` have codes of their own: [docs/findings](findings/README.md).",
        "\n## Of the command line alone\n",
        "What ended a command before it began, or from outside, has no kind of its own.",
        "2 is a command line that is wrong by itself. 13 is one that is well-formed and whose values, spec or target",
        "are refused. A job whose request is JSON (of Airflow, or `python -m statecore.jobs.program`) ends with 13 in",
        "both cases.\n",
        "| error | code | exit code | meaning |",
        "|---|---|---|---|",
        "| `Misused` | `arguments-invalid` | 2 | A command, an option or the form of a value is wrong, or missing. |",
        "| `Misused` | `option-missing`, `options-conflict` | 2 | The same, of options that depend on each other. |",
        "| `Interrupted` | `interrupted` | 130 | Ctrl-C (SIGINT) ended the command. |",
        "| `Terminated` | `terminated` | 143 | SIGTERM ended the command. |",
        "| | | 141 | The reader of its output has exited, as `head` does. |",
        "\n`standby` is a service, which a signal stops: it closes its copies, and ends with 0, or with the worst",
        "exit code of a task in its last round ([its page](standby.md#as-a-service)). A second signal ends it at",
        "once, with 130 or 143.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
