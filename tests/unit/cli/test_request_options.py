from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from statecore.cli.main import main
from statecore.cli.request_options import add_request_options, request_of
from statecore.errors import Invalid
from statecore.jobs.fields.catalog import VersionedStart
from statecore.jobs.fields.declaration import Request, declared_fields
from statecore.jobs.restore.request import RestoreRequest
from tests.harness.raising import code_said
from tests.unit.jobs.requests_with_more import Depth, RequestWithOneMore, VerifyRequest

SAID = ["--spec", "/stores.yaml", "--state-dir", "/s"]


def parser_of(request: type[Request]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="p")
    add_request_options(parser, request)
    return parser


def read(request: type[Request], *words: str) -> Any:
    return request_of(request, parser_of(request).parse_args([*SAID, *words]))


def shown(request: type[Request]) -> str:
    """The help in one line, however wide the terminal is."""
    return " ".join(parser_of(request).format_help().split())


def test_a_new_field_is_an_option() -> None:
    text = shown(RequestWithOneMore)
    assert f"--pause SECONDS {declared_fields(RequestWithOneMore)['pause'].declaration.help.replace('%%', '%')}" in text
    assert "(default: 1.5)" in text
    assert "--pause" not in shown(RestoreRequest)
    request = read(RequestWithOneMore, "--pause", "3")
    assert type(request) is RequestWithOneMore
    assert request.pause == 3.0


def test_another_job_has_its_options() -> None:
    words = ("--topic", "t", "--depth", "rows", "--sizes", "1k", "--sizes", "2k", "--samples", "9")
    request = read(VerifyRequest, *words)
    assert type(request) is VerifyRequest
    assert (request.topic, request.depth, request.sizes, request.samples) == ("t", Depth.ROWS, (1024, 2048), 9)
    assert "--memory-budget" not in shown(VerifyRequest)


def test_without_options_a_request_has_its_defaults() -> None:
    request = read(RestoreRequest)
    assert request == RestoreRequest(spec_path="/stores.yaml", state_dir="/s", request_id=request.request_id)


def test_versioned_stores_are_a_choice() -> None:
    request = read(RestoreRequest, "--versioned", "latest")
    assert request.versioned is VersionedStart.LATEST


def test_relative_paths_are_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--spec", "a.yaml", "--state-dir", "state", "--staging-dir", "staging"]
    request = request_of(RestoreRequest, parser_of(RestoreRequest).parse_args(words))
    paths = (request.spec_path, request.state_dir, request.staging_dir)
    assert paths == tuple(str(tmp_path / name) for name in ("a.yaml", "state", "staging"))


def test_the_help_stands_in_sections_and_says_defaults() -> None:
    text = shown(RestoreRequest)
    assert text.index("what to do:") < text.index("target:") < text.index("limits:")
    for words in (
        "--spec FILE the application's stores.yaml",
        "--store NAME only these stores; repeat the option for each (default: every store of the spec)",
        "--partition N only these partitions; repeat the option for each (default: every partition)",
        "(default: 512m)",
        "(default: 30)",
        "(default: history)",
        "(default: in the state directory)",
        "(default: the owner of the directory that is there)",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--partition", "a"), "argument --partition: 'a' is not the number of a partition"),
        (("--partition", "-1"), "argument --partition: '-1' is not the number of a partition"),
        (("--memory-budget", "lots"), "argument --memory-budget: 'lots' is not a size such as 512m, 512MiB or 2g"),
        (("--timeout", "soon"), "argument --timeout: 'soon' is not a number"),
        (("--staging-dir", ""), "argument --staging-dir: '' is not a path"),
        (("--state-dir", ""), "argument --state-dir: '' is not a path"),
        (("--request-id", "\udcff"), "argument --request-id: '\\udcff' is not text"),
        (("--versioned", "now"), "argument --versioned: invalid choice: 'now'"),
    ],
    ids=str,
)
def test_invalid_option_values_are_refused(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        parser_of(RestoreRequest).parse_args([*SAID, *words])
    assert message in capsys.readouterr().err


def test_what_makes_no_sense_is_refused_with_what_to_do() -> None:
    with pytest.raises(Invalid, match="too small"):
        read(RestoreRequest, "--memory-budget", "1k")


@pytest.mark.parametrize("command", ["inspect", "info", "dump --application-id a --store s", "discover"])
def test_an_empty_path_is_not_the_working_directory(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([*command.split(), "--state-dir", ""])
    assert "argument --state-dir: '' is not a path" in capsys.readouterr().err


def test_a_relative_path_is_named_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    for name, said in (("absent", f"There is no directory {tmp_path}/absent."), ("file", f"{tmp_path}/file is not a")):
        assert main(["inspect", "--state-dir", name]) == 14
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["0", "-1", "nan"])
def test_discover_waits_no_senseless_time(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["discover", "--bootstrap-servers", "localhost:1", "--application-id", "a", "--timeout", seconds]
    assert main(words) == 13
    assert code_said(capsys.readouterr().err) == "duration-invalid"
