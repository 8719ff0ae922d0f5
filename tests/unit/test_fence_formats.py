"""Findings for people, programs, code scanning and CI services; no bench writes into any of them."""

import json
import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from codegenie.eval.fence import RULES, inspect_paths
from codegenie.eval.fence.formats import github_lines, human_lines, json_document, sarif_document
from codegenie.eval.fence.linting import FenceReport
from tests.support.stub_benches import CASE, NAME, appended, copy_stub, written

HOSTILE = " ##[add-mask]a ##vso[task.x]b "
HOSTILE += "::set-output name=a::b%0A::stop-commands::x\r\n::error::y, file=z: \x1b]52;c;eA==\x07\x9b2J"


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FenceReport:
    """Return what is found in a bench that writes commands wherever its text is repeated."""
    monkeypatch.chdir(tmp_path)
    bench = copy_stub(tmp_path / "bench")
    quoted = json.dumps(HOSTILE)
    (bench / HOSTILE).touch()
    (bench / "cases" / HOSTILE).mkdir()
    (bench / "cases" / CASE / "input" / HOSTILE).touch()
    appended(
        "failure_modes.yaml", f"{quoted}: {{severity: {quoted}, description: d}}\na: {{severity: {quoted}}}\n"
    )(bench)
    appended("breakdown_keys.py", f"    MORE = {HOSTILE!r}\n")(bench)
    appended("README.md", HOSTILE.replace("\r", "").replace("\n", " \N{RIGHT-TO-LEFT OVERRIDE}"))(bench)
    appended(f"cases/{CASE}/case.toml", f"{quoted.replace('x07', 'u0007')} = 1\n")(bench)
    written("registration.py", f"@register_task_class({HOSTILE!r})\nclass A: pass\n")(bench)
    return inspect_paths(["bench"])


def test_a_line_for_people_names_place_rule_and_what_to_do(report: FenceReport) -> None:
    lines = list(human_lines(report, ["rubric.py: is no longer executable"]))

    assert lines[0] == "fixed  rubric.py: is no longer executable"
    assert len(lines) == 2 * len(report.findings) + 2
    assert all(line.isprintable() for line in lines)
    assert all(re.match(rf"bench/{NAME}(/.*)?: (error|warning) F\d\d\d: \S", line) for line in lines[1:-1:2])
    assert all(line.startswith("    next: ") for line in lines[2:-1:2])
    assert not any(re.search(r"##\w*\[", line) for line in lines)
    assert any("# #[add-mask]a" in line for line in lines)
    assert lines[-1] == f"{len(report.findings)} errors, 0 warnings: 1 task class, 3 cases"


def test_the_document_holds_every_field_of_every_finding(report: FenceReport) -> None:
    document = json.loads(json.dumps(json_document(report, ())))

    assert document["task_classes"] == 1
    assert document["cases"] == 3
    assert document["fixed"] == []
    assert len(document["findings"]) == len(report.findings) > 8
    keys = {"rule", "severity", "path", "line", "column", "message", "fix"}
    assert all(finding.keys() == keys for finding in document["findings"])
    assert all(
        text.isprintable() for one in document["findings"] for text in one.values() if isinstance(text, str)
    )


def commands(lines: list[str]) -> list[tuple[str, dict[str, str], str]]:
    """Read workflow commands as the runner of the service does."""
    found = []
    for line in lines:
        if not line.startswith("::"):
            continue
        head, _, data = line[2:].partition("::")
        name, _, given = head.partition(" ")
        properties = dict(part.split("=", 1) for part in given.split(",") if part)
        found.append((name, properties, data))
    return found


def test_a_bench_begins_no_workflow_command_of_its_own(report: FenceReport) -> None:
    lines = "\n".join(github_lines(report, [f"fixed {HOSTILE}"])).split("\n")
    read = commands(lines)

    assert [name for name, _, _ in read] == ["notice", *(finding.severity for finding in report.findings)]
    assert len(lines) == len(report.findings) + 2
    for (_, properties, _), finding in zip(read[1:], report.findings, strict=True):
        assert properties.keys() <= {"file", "line", "col", "title"}
        assert unquote(properties["file"]) == finding.path.replace("##", "# #")
        assert properties.get("line") == (None if finding.line is None else str(finding.line))
    assert not any("\r" in line or re.search(r"##\w*\[", line) for line in lines)


def test_a_percent_sign_of_a_bench_is_not_taken_for_an_escape(report: FenceReport) -> None:
    (line,) = [line for line in github_lines(report, ["100%0A::error::x"]) if "fixed" in line]

    assert line == "::notice title=fixed::100%250A::error::x"


def test_the_log_for_code_scanning_has_the_form_of_its_standard(report: FenceReport) -> None:
    log = json.loads(json.dumps(sarif_document(report)))
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]

    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("/sarif-schema-2.1.0.json")
    assert run["columnKind"] == "unicodeCodePoints"
    assert run["automationDetails"]["id"]
    assert [rule["id"] for rule in rules] == list(RULES)
    assert all(
        rule[part]["text"] for rule in rules for part in ("shortDescription", "fullDescription", "help")
    )
    assert len(run["results"]) == len(report.findings)
    for result, finding in zip(run["results"], report.findings, strict=True):
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == finding.rule
        assert (
            result["level"] == rules[result["ruleIndex"]]["defaultConfiguration"]["level"] == finding.severity
        )
        assert result["message"]["text"].isprintable()
        (location,) = result["locations"]
        place = location["physicalLocation"]
        uri = place["artifactLocation"]["uri"]
        assert re.fullmatch(r"[A-Za-z0-9._~/%'()-]+", uri)
        assert unquote(uri) == finding.path
        assert place["artifactLocation"]["uriBaseId"] == "%SRCROOT%"
        assert place.get("region", {}).get("startLine") == finding.line
        assert all(number >= 1 for number in place.get("region", {}).values())
        assert result["partialFingerprints"]


def test_a_finding_outside_the_working_directory_has_an_absolute_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = copy_stub(tmp_path / "a bench")
    (bench / "x").touch()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (result,) = sarif_document(inspect_paths([bench]))["runs"][0]["results"]
    artifact = result["locations"][0]["physicalLocation"]["artifactLocation"]

    assert artifact == {"uri": f"file://{tmp_path}/a%20bench/{NAME}/x"}


def test_the_same_finding_on_another_line_has_the_same_fingerprint(tmp_path: Path) -> None:
    bench = copy_stub(tmp_path)
    prints = []
    for _ in range(2):
        appended("README.md", "\n")(bench)
        appended("failure_modes.yaml", "# a line\n")(bench)
        text = (bench / "failure_modes.yaml").read_text(encoding="utf-8")
        written("failure_modes.yaml", text + "a.b: {severity: critical, description: d}\n")(bench)
        (result,) = sarif_document(inspect_paths([bench]))["runs"][0]["results"]
        prints.append((result["partialFingerprints"], result["locations"][0]["physicalLocation"]["region"]))
        written("failure_modes.yaml", text)(bench)

    assert prints[0][0] == prints[1][0]
    assert prints[0][1] != prints[1][1]
