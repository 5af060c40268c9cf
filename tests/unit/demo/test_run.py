from __future__ import annotations

import pytest

from demo import run


@pytest.mark.parametrize("error", [TimeoutError("nothing was committed"), RuntimeError("it ended"), OSError("no room")])
def test_a_demo_that_cannot_go_on_says_why_and_what_to_do_without_a_traceback(
    capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def fail() -> int:
        raise error

    assert run.main(fail) == 1
    said = capsys.readouterr().err
    assert f"The demo failed: {error}" in said
    assert "make stop" in said


def test_an_interruption_prints_how_to_stop_the_processes(capsys: pytest.CaptureFixture[str]) -> None:
    def stopped() -> int:
        raise KeyboardInterrupt

    assert run.main(stopped) == 130
    assert "`make stop`" in capsys.readouterr().err
