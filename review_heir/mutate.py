# ruff: noqa
"""Changes one line at a time, runs the unit tests of the module, says whether they fail, and puts the line back.

python review_heir/mutate.py            (from the worktree, PYTHONPATH=.)
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

R, T = "statecore/runtime/", "tests/unit/runtime/"
MUTATIONS = [
    # file, before, after, tests
    (R + "cleaning.py", "if found.sum > elsewhere:", "if found.sum > elsewhere + 1:", [T + "test_cleaning.py"]),
    (R + "followed_store.py", "self._offset = min(known)", "self._offset = max(known)", [T + "test_followed_store.py"]),
    (
        R + "followed_store.py",
        "for number, segment in enumerate(self._in_order()):",
        "for number, segment in enumerate(reversed(self._in_order())):",
        [T + "test_followed_store.py", T + "test_standby_task.py", T + "test_task_stores.py"],
    ),
    (R + "followed_logs.py", "if known.end < position:", "if False:", [T + "test_standby_task.py"]),
    (R + "standby_task.py", "behind = read[1:] if is_first else read", "behind = read", [T + "test_standby_task.py"]),
    (R + "standby_task.py", "if store.position >= now.log.last_stable:", "if True:", [T + "test_standby_task.py"]),
    (
        R + "startup.py",
        "fits = self._databases + looked.databases <= self._settings.max_open_stores",
        "fits = self._databases + 1 <= self._settings.max_open_stores",
        [T + "test_startup.py"],
    ),
    (R + "startup.py", "        self._refused.pop(task, None)\n", "", [T + "test_startup.py"]),
    (R + "offset_sums.py", "newest_ns(databases) <= self.file_ns", "True", [T + "test_offset_sums.py"]),
    (
        R + "offset_sums.py",
        "elif holder is not None:",
        "elif False:",
        [T + "test_offset_sums.py", T + "test_startup.py", T + "test_cleaning.py"],
    ),
    (R + "assignment/assignor.py", "if has - {here}:", "if False:", [T + "assignment/test_assignor.py"]),
    (
        R + "assignment/assignor.py",
        "return lag - better > self.settings.recovery_lag or better",
        "return better",
        [T + "assignment/test_assignor.py"],
    ),
    (
        R + "assignment/protocol.py",
        "best = {task: max(held)",
        "best = {task: min(held)",
        [T + "assignment/test_protocol.py"],
    ),
    (
        R + "group.py",
        "if self._less_than_believed():\n            # A static",
        "if False:\n            # A static",
        [T + "test_group.py", T + "assignment/"],
    ),
    (R + "group.py", "ready = bool(warm) and all(", "ready = bool(warm) and any(", [T + "test_group.py"]),
    (R + "group_consumer.py", "if join.answered and", "if False and", [T + "test_group.py"]),
    (
        R + "global_offsets.py",
        "if position > log.log_end:",
        "if position > log.log_end + 1:",
        [T + "test_global_offsets.py"],
    ),
    (R + "global_store.py", "self._targets = dict(look.ends)", "self._targets = {}", [T + "test_global_stores.py"]),
    (R + "changelog_ends.py", "end = min(end, consumed[changelog] or 0)", "pass", [T + "test_changelog_ends.py"]),
    (
        R + "changelog_ends.py",
        "end = log.last_stable if committed else log.log_end",
        "end = log.log_end",
        [T + "test_changelog_ends.py"],
    ),
    (
        "statecore/jobs/kept_tasks.py",
        "                one.pause = FIRST_RETRY\n",
        "                pass\n",
        ["tests/unit/jobs/test_kept_tasks.py"],
    ),
    (
        "statecore/jobs/kept_tasks.py",
        "if done.stale and not stopped():",
        "if done.stale:",
        ["tests/unit/jobs/test_kept_tasks.py"],
    ),
    (
        "statecore/jobs/standby_fleet.py",
        "if task in ends and ends[task] - held <= near",
        "if True",
        ["tests/unit/jobs/test_standby_fleet.py"],
    ),
    (
        "statecore/jobs/hand_over_judging.py",
        "if age + CLOCK_MARGIN_MS < horizon:",
        "if age < horizon:",
        ["tests/unit/jobs/test_hand_over_judging.py", "tests/unit/jobs/test_hand_over.py"],
    ),
    (
        "statecore/jobs/hand_over_look.py",
        "if live > one.offset:",
        "if live > one.offset + 1:",
        ["tests/unit/jobs/test_hand_over.py"],
    ),
    (
        "statecore/processor/active_task.py",
        "at_end = at_end and all(end.log.last_stable >= end.log.log_end for end in ends.values())",
        "pass",
        ["tests/unit/processor/test_active_task.py"],
    ),
    (
        "statecore/processor/active_task.py",
        "self._commit_to_kafka()\n            self._faults",
        "pass\n            self._faults",
        ["tests/unit/processor/test_active_task.py"],
    ),
    (
        "statecore/processor/active_task.py",
        "        for sent in self._sent:\n            sent.get(0)\n",
        "",
        ["tests/unit/processor/test_active_task.py"],
    ),
    ("statecore/jobs/standby_bases.py", "        self._remember(task, report)\n", "", ["tests/unit/jobs"]),
]


def main() -> None:
    chosen = [int(one) for one in sys.argv[1:]] or range(len(MUTATIONS))
    for number in chosen:
        name, before, after, tests = MUTATIONS[number]
        path = Path(name)
        text = path.read_text()
        if text.count(before) != 1:
            print(number, "NOT ONCE", name, before, flush=True)
            continue
        try:
            path.write_text(text.replace(before, after))
            ran = subprocess.run(
                [sys.executable, "-m", "pytest", *tests, "-x", "-q", "-p", "no:cacheprovider"],
                capture_output=True,
                text=True,
                timeout=400,
                check=False,
            )
        finally:
            path.write_text(text)
        failed = [line for line in ran.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        print(
            number,
            "killed " if ran.returncode == 1 else f"SURVIVED rc={ran.returncode}",
            name,
            "|",
            before.strip()[:70],
            "|",
            (failed or ran.stdout.splitlines()[-1:])[0][:150],
            flush=True,
        )


main()
