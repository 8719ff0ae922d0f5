"""Format findings for people, programs, code scanning and CI services.

Every text in a finding is already printable. This module only puts it into the form that its reader needs.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import quote

from codegenie import __version__
from codegenie.eval.canonical import digest_json
from codegenie.eval.fence.findings import Finding
from codegenie.eval.fence.linting import FenceReport
from codegenie.eval.fence.rules import RULES, Rule
from codegenie.eval.wording import counted

_SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


# Older commands of CI services, which also work in the middle of a line: ##[x], ##vso[x], ##teamcity[x].
_COMMAND = re.compile(r"##(?=\w*\[)")


def _inert(line: str) -> str:
    return _COMMAND.sub("# #", line)


def human_lines(report: FenceReport, fixed: Sequence[str]) -> Iterator[str]:
    """Yield a line for each finding and what to do about it, then the totals."""
    for line in fixed:
        yield _inert(f"fixed  {line}")
    for finding in report.findings:
        yield _inert(f"{finding.place()}: {finding.severity} {finding.rule}: {finding.message}")
        yield _inert(f"    next: {finding.fix}")
    yield summary(report)


def summary(report: FenceReport) -> str:
    """Say in one line how many findings there are, and in how many classes and cases."""
    errors = sum(finding.severity == "error" for finding in report.findings)
    warnings = len(report.findings) - errors
    found = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}" if report.findings else "clean"
    classes = counted(len(report.classes), "task class", "es")
    return f"{found}: {classes}, {counted(report.case_count, 'case')}"


def json_document(report: FenceReport, fixed: Sequence[str]) -> dict[str, Any]:
    """Return the document of `--json`."""
    return {
        "findings": [asdict(finding) for finding in report.findings],
        "fixed": list(fixed),
        "task_classes": len(report.classes),
        "cases": report.case_count,
    }


def rule_document(rule_id: str) -> dict[str, Any]:
    """Return one rule as data."""
    return {"id": rule_id, **asdict(RULES[rule_id])}


def rule_lines(rule_id: str) -> Iterator[str]:
    """Yield the text of `--explain`."""
    rule = RULES[rule_id]
    yield f"{rule_id} ({rule.severity}): {rule.title}"
    yield f"  why:   {rule.why}"
    yield f"  next:  {rule.do}"
    yield f"  --fix: {'repairs it' if rule.fixable else 'does not touch it'}"


def github_lines(report: FenceReport, fixed: Sequence[str]) -> Iterator[str]:
    """Yield workflow commands. The text of a bench cannot end a command early or begin another one."""
    for line in fixed:
        yield _inert(f"::notice title=fixed::{_escaped(line)}")
    for finding in report.findings:
        places = {"file": finding.path, "line": finding.line, "col": finding.column}
        properties = {**places, "title": f"{finding.rule} {RULES[finding.rule].title}"}
        given = ",".join(
            f"{name}={_escaped_property(str(value))}"
            for name, value in properties.items()
            if value is not None
        )
        yield _inert(f"::{finding.severity} {given}::{_escaped(f'{finding.message}; {finding.fix}')}")
    yield summary(report)


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escaped_property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")


def sarif_document(report: FenceReport) -> dict[str, Any]:
    """Return a SARIF 2.1.0 log with one run."""
    ids = list(RULES)
    driver = {
        "name": "codegenie eval fence",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [_sarif_rule(rule_id, RULES[rule_id]) for rule_id in ids],
    }
    return {
        "$schema": _SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "automationDetails": {"id": "codegenie-eval-fence/"},
                "columnKind": "unicodeCodePoints",
                "results": [_sarif_result(finding, ids.index(finding.rule)) for finding in report.findings],
            }
        ],
    }


def _sarif_rule(rule_id: str, rule: Rule) -> dict[str, Any]:
    return {
        "id": rule_id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "help": {"text": rule.do},
        "defaultConfiguration": {"level": rule.severity},
    }


def _sarif_result(finding: Finding, index: int) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": _artifact(finding.path)}
    if finding.line is not None:
        column = {} if finding.column is None else {"startColumn": finding.column}
        place["region"] = {"startLine": finding.line, **column}
    # The line is left out: a finding that only moved is still the same finding.
    same = digest_json("finding.v1", [finding.rule, finding.path, finding.message])
    return {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": finding.severity,
        "message": {"text": f"{finding.message}. To do: {finding.fix}."},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {"codegenieFinding/v1": same},
    }


def _artifact(path: str) -> dict[str, str]:
    """Name a file by a URI, relative to the working directory, or absolute if it is outside."""
    if path.startswith("/"):
        return {"uri": f"file://{quote(path)}"}
    return {"uri": quote(path.removeprefix("./") or "."), "uriBaseId": "%SRCROOT%"}
