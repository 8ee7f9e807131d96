"""The decision vectors, through the Python API; and that their runner sees what it should."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import vectors

DIRECTORY = Path(__file__).resolve().parents[3] / "tests" / "vectors"
FILES = vectors.files_of(DIRECTORY)


@pytest.mark.parametrize("path", FILES, ids=[path.name for path in FILES])
def test_every_decision_is_the_one_of_the_vectors(path: Path) -> None:
    summary = vectors.run_file(path)
    assert summary.failed == 0, summary.first_difference
    scenarios = list(vectors.scenarios_of(path))
    assert summary.passed + len(summary.unsupported_names) == len(scenarios)
    assert summary.passed == sum(map(vectors.is_supported, scenarios))


@pytest.mark.parametrize(
    ("name", "count"), [("rate", 33), ("concurrency", 18), ("quota", 7), ("policy", 4)]
)
def test_all_vectors_are_run(name: str, count: int) -> None:
    summary = vectors.run_file(DIRECTORY / f"{name}.jsonl")
    assert summary.passed >= count and summary.unsupported_names == []


def scenario(**step: Any) -> dict[str, Any]:
    expect = {"verdict": "ADMITTED", "limit": "1", "remaining": "0", "reset_after_ns": "1000000000"}
    return {
        "name": "one token",
        "unix_base_ns": "0",
        "limits": [{"kind": "rate", "count": "1", "period_ns": "1000000000", "burst": "1"}],
        "policies": {"default": [["0", "CALLER"]]},
        "steps": [
            {"op": "admit", "at": "0", "permit": "p", "expect": expect},
            {"op": "settle", "at": "0", "permit": "p", "outcome": "CANCELLED",
             "expect": {"status": "OK"}},
        ],
    }  # fmt: skip


def test_what_is_right_is_no_difference() -> None:
    assert vectors.run_scenario(scenario()) is None


@pytest.mark.parametrize(
    ("step", "name", "value"),
    [
        (0, "verdict", "REFUSED"),
        (0, "limit", "2"),
        (0, "remaining", "1"),
        (0, "reset_after_ns", "999999999"),
        (0, "retry_after_ns", "1"),
        (0, "by", "1"),
        (0, "reason", "RATE"),
        (0, "what", "0"),
        (1, "status", "ALREADY_SETTLED"),
    ],
)
def test_what_is_wrong_is_a_difference(step: int, name: str, value: str) -> None:
    wrong = copy.deepcopy(scenario())
    wrong["steps"][step]["expect"][name] = value
    difference = vectors.run_scenario(wrong)
    assert difference is not None and name in difference


def test_a_wrong_number_of_admissions_is_a_difference() -> None:
    wrong = scenario()
    step = wrong["steps"][0]
    step["repeat"] = "3"
    step["expect"] = {"admitted": "2", "last": {"verdict": "REFUSED"}}
    assert vectors.run_scenario(wrong) == "step 0: admitted 1, expected 2"


def test_an_error_that_is_not_raised_and_one_that_blames_another_field_are_differences() -> None:
    missing = scenario()
    missing["config_error"] = "count"
    assert "succeeds" in str(vectors.run_scenario(missing))
    missing["limits"][0]["burst"] = "0"
    assert "blames 'burst'" in str(vectors.run_scenario(missing))


def test_a_scenario_that_needs_what_is_not_built_is_listed_and_never_passed(tmp_path: Path) -> None:
    foreign = scenario()
    foreign["limits"][0]["kind"] = "hologram"
    (tmp_path / "x.jsonl").write_text(json.dumps(foreign) + "\n", encoding="utf-8")
    summary = vectors.run_file(tmp_path / "x.jsonl")
    assert (summary.passed, summary.failed, summary.unsupported_names) == (0, 0, ["one token"])


def run(directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(Path(__file__).with_name("vectors.py")), str(directory)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_program_prints_a_line_for_each_file_and_fails_where_one_does(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(scenario()) + "\n", encoding="utf-8")
    assert run(tmp_path).returncode == 0
    wrong = scenario()
    wrong["steps"][0]["expect"]["limit"] = "7"
    (tmp_path / "b.jsonl").write_text(json.dumps(wrong) + "\n", encoding="utf-8")
    result = run(tmp_path)
    assert result.returncode == 1
    first, second = map(json.loads, result.stdout.splitlines())
    assert first == {
        "surface": "python", "file": "a.jsonl", "passed": 1, "failed": 0, "unsupported": 0,
        "first_difference": None, "unsupported_names": [],
    }  # fmt: skip
    assert second["first_difference"] == "one token: step 0: limit 1, expected 7"


def test_the_program_says_where_there_is_nothing_to_run(tmp_path: Path) -> None:
    assert run(tmp_path).returncode == 2
