"""What the pages of standby tasks and of global stores show is what the commands take, end with, and measure."""

from __future__ import annotations

import argparse
import configparser
import importlib
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from statecore.cli.request_options import request_of
from statecore.errors import StatecoreError
from statecore.standby.request import StandbyRequest
from tests.harness.instruments import INSTRUMENTS

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "standby.md").read_text()


def parser_of(command: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    importlib.import_module(f"statecore.cli.{command.replace('-', '_')}").add_arguments(parser)
    return parser


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def stateful_set() -> Any:
    (found,) = (one for one in map(yaml.safe_load, blocks("yaml")) if one.get("kind") == "StatefulSet")
    return found


def unit() -> configparser.SectionProxy:
    (text,) = blocks("ini")
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[method-assign,assignment]
    parser.read_string(text)
    return parser["Service"]


def request_by(words: Sequence[str]) -> StandbyRequest:
    assert Path(words[0]).name == "statecore"
    assert words[1] == "standby"
    return request_of(StandbyRequest, parser_of("standby").parse_args(words[2:]))


@pytest.mark.parametrize("command", ["standby", "promote", "recover-global"])
def test_every_option_of_a_command_stands_on_its_page(command: str) -> None:
    page = (DOCS / f"{command}.md").read_text()
    options = {word for action in parser_of(command)._actions for word in action.option_strings} - {"-h", "--help"}
    assert {option for option in options if not re.search(rf"{option}\b", page)} == set()


def test_the_unit_starts_a_member_with_a_name_of_its_own_and_gives_it_time_to_stop() -> None:
    request = request_by(shlex.split(unit()["ExecStart"]))
    assert (request.group, request.instance_id) == ("orders-warm", "%H")
    assert int(unit()["TimeoutStopSec"]) > 2 * request.timeout
    prevented = set(map(int, unit()["RestartPreventExitStatus"].split()))
    assert prevented == {2, *(code for code, kind in kinds().items() if kind in ("Fenced", "Invalid"))}


def test_the_stateful_set_starts_pods_with_names_that_it_gives_them() -> None:
    spec = stateful_set()["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    request = request_by(container["command"])
    given = {one["name"] for one in container["env"]}
    assert {f"$({name})" for name in given} == {request.instance_id, request.host}
    assert pod["terminationGracePeriodSeconds"] > 2 * request.timeout
    places = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert request.state_dir == places["state"]
    assert str(request.spec_path).startswith(f"{places['spec']}/")
    volumes = {one["name"] for one in pod["volumes"]} | {
        one["metadata"]["name"] for one in spec["volumeClaimTemplates"]
    }
    assert volumes == set(places)


def kinds() -> dict[int, str]:
    return {kind.exit_code: kind.__name__ for kind in StatecoreError.__subclasses__() if kind.exit_code >= 10}


def test_every_exit_code_of_a_standby_is_explained() -> None:
    table = PAGE[PAGE.index("| exit | it means | do |") :].split("\n\n")[0]
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)] == [0, *sorted(kinds())]


def test_the_rules_of_prometheus_ask_for_metrics_that_there_are() -> None:
    (rules,) = (one["groups"] for one in map(yaml.safe_load, blocks("yaml")) if "groups" in one)
    asked = {
        word for group in rules for rule in group["rules"] for word in re.findall(r"[a-z]+(?:_[a-z]+)+", rule["expr"])
    }
    tags = {"application_id", "task_id"}
    assert asked - tags <= {one.name.replace("-", "_") for one in INSTRUMENTS}
    assert tags <= asked
