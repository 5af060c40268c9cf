"""The engine without Spark: who works, what comes back, and what becomes of workers and drivers that die."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from statecore.errors import Capacity, Invalid, Retryable, StatecoreError
from statecore.jobs.engine.processes import ProcessEngine, ProcessWorkers
from statecore.jobs.engine.protocol import Failure, WorkerRequirements
from tests.harness.raising import raises
from tests.unit.jobs import work
from tests.unit.jobs.support import spec


@pytest.fixture(scope="module")
def shared() -> Iterator[ProcessWorkers]:
    """Two workers for all tests that leave them alive."""
    with ProcessEngine(2, preloaded=()).start("test", spec()) as workers:
        yield workers


def test_every_batch_is_answered(shared: ProcessWorkers) -> None:
    batches = [[number, number + 1] for number in range(0, 200, 2)]
    assert sorted(shared.run(work.double, batches, "a test ran")) == [2 * number for number in range(200)]


@pytest.mark.parametrize(("engine", "options"), [(ProcessEngine(), []), (ProcessEngine(3), ["--processes", "3"])])
def test_options_of_a_command_choose_the_engine(engine: ProcessEngine, options: list[str]) -> None:
    assert engine.options == ("--engine", "processes", *options)


def test_no_batch_no_answer(shared: ProcessWorkers) -> None:
    assert shared.run(work.double, [], "a test ran") == []


def test_the_processes_work_at_the_same_time_and_are_others_than_the_driver(
    shared: ProcessWorkers, tmp_path: Path
) -> None:
    answers = shared.run(work.meet, [[str(tmp_path)]] * 2, "a test ran")
    assert len({*answers, os.getpid()}) == 3


def test_workers_import_the_modules_of_the_driver_and_not_of_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "statecore").mkdir()
    (tmp_path / "statecore" / "__init__.py").write_text("raise ImportError('another statecore')")
    monkeypatch.chdir(tmp_path)
    with ProcessEngine(1, preloaded=()).start("test", spec()) as workers:
        assert workers.run(work.double, [[1]], "a test ran") == [2]


def test_what_a_worker_prints_is_no_answer(shared: ProcessWorkers) -> None:
    assert shared.run(work.chat, [["a"], ["b"]], "a test ran") in (["a", "b"], ["b", "a"])


def test_after_a_failure_no_batch_is_begun() -> None:
    with ProcessEngine(1, preloaded=()).start("test", spec()) as workers:
        answers = workers.run(work.fail_at, [[0], [1], [2], [3]], "a test ran")
        assert answers[0] == 0
        (failure,) = answers[1:]
        assert isinstance(failure, Failure)
        assert isinstance(failure.to_error(), Retryable)
        assert workers.run(work.double, [[4]], "a test ran") == [8]


def test_an_exception_that_is_no_answer_is_a_defect_with_a_trace(shared: ProcessWorkers) -> None:
    with pytest.raises(StatecoreError, match="while a test ran") as raised:
        shared.run(work.stumble, [[7]], "a test ran")
    assert "ZeroDivisionError: by 7" in raised.value.context["trace"]
    assert shared.run(work.double, [[4]], "a test ran") == [8]


def test_work_that_a_worker_cannot_import_is_a_defect_with_a_trace(shared: ProcessWorkers) -> None:
    gone = type(sys)("tests.unit.jobs.gone")
    exec("def work(batch): return []", gone.__dict__)
    sys.modules[gone.__name__] = gone
    try:
        with raises(StatecoreError, "defect") as raised:
            shared.run(gone.work, [[7]], "a test ran")
    finally:
        del sys.modules[gone.__name__]
    assert f"ModuleNotFoundError: No module named {gone.__name__!r}" in raised.value.context["trace"]


def test_the_terminal_s_interrupt_leaves_a_worker_alone_and_silent_from_its_first_moment_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    workers = ProcessWorkers(1, tmp_path, ())
    try:
        for _ in range(40):
            os.kill(workers._workers[0]._process.pid, signal.SIGINT)
            time.sleep(0.01)
        assert workers.run(work.double, [[1]], "a test ran") == [2]
        assert workers.run(work.interrupts_blocked, [[0]], "a test ran") == [0]
    finally:
        workers.close()
    assert capfd.readouterr().err == ""
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_worker_that_is_killed_is_want_of_memory() -> None:
    with (
        ProcessEngine(1, preloaded=()).start("test", spec()) as workers,
        pytest.raises(Capacity, match="while a test ran") as raised,
    ):
        workers.run(work.die, [[signal.SIGKILL]], "a test ran")
    assert "memory budget" in raised.value.action


def test_a_worker_that_crashes_is_a_defect_and_says_where() -> None:
    with (
        ProcessEngine(1, preloaded=()).start("test", spec()) as workers,
        raises(StatecoreError, "worker-crashed") as raised,
    ):
        workers.run(work.crash, [[0]], "a test ran")
    assert type(raised.value) is StatecoreError
    assert any(re.fullmatch(r"\S+/work\.py:\d+ crash", line) for line in raised.value.context["trace"].splitlines())


def test_a_worker_that_crashes_in_a_kernel_names_who_called_it() -> None:
    with (
        ProcessEngine(1, preloaded=()).start("test", spec()) as workers,
        pytest.raises(StatecoreError, match=r"in a kernel called by \S+/work\.py, line \d+ \(crash_in_a_kernel\)"),
    ):
        workers.run(work.crash_in_a_kernel, [[0]], "a test ran")


@pytest.mark.parametrize(
    ("number", "name", "kind", "words"),
    [
        (signal.SIGSEGV, "Segmentation fault", StatecoreError, "this is a defect"),
        (signal.SIGABRT, "Aborted", StatecoreError, "this is a defect"),
        (signal.SIGFPE, "Floating[- ]point exception", StatecoreError, "this is a defect"),
        (signal.SIGILL, "Illegal instruction", StatecoreError, "another CPU"),
        (signal.SIGBUS, "Bus error", Retryable, "mapped file"),
        (signal.SIGSYS, "Bad system call", StatecoreError, "this is a defect"),
        (signal.SIGTERM, None, Capacity, "lack of memory"),
    ],
)
def test_each_signal_of_which_a_worker_dies_has_its_kind(
    number: signal.Signals, name: str | None, kind: type[StatecoreError], words: str
) -> None:
    with (
        ProcessEngine(1, preloaded=()).start("test", spec()) as workers,
        pytest.raises(StatecoreError, match=words) as raised,
    ):
        workers.run(work.die, [[number]], "a test ran")
    assert type(raised.value) is kind
    assert "while a test ran" in raised.value.what
    if name is not None:
        assert re.search(rf"died of a signal \({name}\)", raised.value.what)


def test_a_worker_that_leaves_is_a_defect() -> None:
    with (
        ProcessEngine(1, preloaded=()).start("test", spec()) as workers,
        pytest.raises(StatecoreError, match="ended while"),
    ):
        workers.run(work.leave, [[0]], "a test ran")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_worker_outlives_its_driver(tmp_path: Path, number: signal.Signals) -> None:
    mark = tmp_path / "mark"
    driver = subprocess.Popen([sys.executable, "-m", "tests.unit.jobs.work", str(mark)], stderr=subprocess.DEVNULL)
    try:
        worker = int(work.wait_for(mark))
        assert work.is_running(worker)
        driver.send_signal(number)
        assert driver.wait(work.PATIENCE) != 0
        work.await_end(worker)
    finally:
        driver.kill()
        driver.wait()


def test_none_is_left_when_the_job_has_ended(tmp_path: Path) -> None:
    with ProcessEngine(2, preloaded=()).start("test", spec()) as workers:
        processes = workers.run(work.meet, [[str(tmp_path)]] * 2, "a test ran")
    for process in processes:
        assert isinstance(process, int)
        assert not work.is_running(process)


def test_one_works_for_each_core_unless_a_number_is_given() -> None:
    with ProcessEngine(preloaded=()).start("test", spec()) as workers:
        assert workers.parallelism() == len(os.sched_getaffinity(0))
        where = workers.check(WorkerRequirements(Path(), (), ()))
    assert (where.master, where.executors) == ("processes", workers.parallelism())
    assert "this machine" in str(where)


@pytest.mark.parametrize("number", [0, -1])
def test_no_process_is_no_engine(number: int) -> None:
    with pytest.raises(Invalid, match="not a valid number"):
        ProcessEngine(number)
