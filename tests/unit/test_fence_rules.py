"""Every rule of the fence: a bench that breaks it, and one that only looks as if it did."""

import os
from pathlib import Path

import pytest

from codegenie.eval.fence import RULES, inspect_paths
from codegenie.eval.fence.findings import Notes
from tests.support.fence import LIVE_KEYS, found_after, found_in, rules_of
from tests.support.fence_benches import (
    BENIGN,
    BROKEN,
    INPUT,
    MARKS,
    MIXED,
    RLO,
    TOML,
    VERY_LONG,
    entry,
    key,
    more_cases,
    put,
)
from tests.support.sampling import sampled
from tests.support.stub_benches import (
    appended,
    copy_stub,
    digested,
    in_turn,
    link,
    prepended,
    removed,
    replaced,
)

BESIDE = {"F009"}  # Takes two classes, and has its own test below.

TABLE = [(rule, sentence) for rule, rows in BROKEN.items() for sentence in rows]


def test_every_rule_has_a_bench_that_breaks_it() -> None:
    assert BROKEN.keys() | BESIDE == RULES.keys()


@pytest.mark.parametrize(("rule", "sentence"), TABLE, ids=[f"{rule} {sentence}" for rule, sentence in TABLE])
def test_what_is_wrong_is_found_under_its_rule(rule: str, sentence: str, tmp_path: Path) -> None:
    bench = copy_stub(tmp_path)
    BROKEN[rule][sentence](bench)
    where = bench if bench.exists() else tmp_path

    mine = [finding for finding in found_in(where) if finding.rule == rule]

    assert mine
    assert all(finding.severity == RULES[rule].severity for finding in mine)
    assert all(text.isprintable() for one in mine for text in (one.path, one.message, one.fix))
    assert all(one.message and one.fix for one in mine)


@pytest.mark.parametrize("what", sampled(BENIGN, in_every_run=VERY_LONG.__ne__))
def test_what_only_looks_wrong_is_not_found(what: str, tmp_path: Path) -> None:
    assert found_after(tmp_path, BENIGN[what]) == ()


def test_one_name_in_two_places_is_found_in_both(tmp_path: Path) -> None:
    one, two = copy_stub(tmp_path / "a"), copy_stub(tmp_path / "b")

    assert rules_of(inspect_paths([one, two]).findings) == ["F009", "F009"]
    assert rules_of(inspect_paths([one, one / "rubric.py"]).findings) == []


def test_a_finding_names_file_line_and_column(tmp_path: Path) -> None:
    findings = found_after(
        tmp_path,
        appended("README.md", f"one\ntwo {RLO}\n"),
        appended("rubric.py", f"\nif passed:\n    {MIXED} = 1\n"),
        entry("a.b: {severity: critical, description: d}"),
        digested(appended(TOML, "weight = 2\n")),
        appended("cases/digests.yaml", f"gone: blake3:{'0' * 64}\n"),
        in_turn(put("rubric_lib/x.py", f'A = 1\nB = "{LIVE_KEYS["a GitHub token"]}"\n')),
    )
    places = {
        finding.rule: (finding.path.rpartition("/")[2], finding.line, finding.column) for finding in findings
    }

    assert places == {
        "F070": ("README.md", 22, 5),
        "F072": ("rubric.py", 23, 5),
        "F030": ("failure_modes.yaml", 27, None),
        "F051": ("case.toml", 9, None),
        "F063": ("digests.yaml", 4, None),
        "F080": ("x.py", 2, 6),
    }


def test_everything_that_is_wrong_is_found_at_once(tmp_path: Path) -> None:
    findings = found_after(
        tmp_path,
        removed("README.md"),
        put("conftest.py"),
        entry("a.b: {severity: critical, description: d}", "a.c: {severity: warn}", "A: {}", "a.d: x"),
        in_turn(key('"llm"'), appended("breakdown_keys.py", "    B = b()\n    C = 1\n")),
        appended("registration.py", "import os\nimport sys\n"),
        digested(appended(TOML, 'weight = 2\nskip = true\nfamily = "A"\n')),
        link(f"{INPUT}/one", "/"),
        link(f"{INPUT}/two", "/"),
    )

    assert sorted(rules_of(findings)) == sorted(
        ["F001", "F004", *["F030"] * 4, "F021", *["F020"] * 2, *["F010"] * 2, *["F051"] * 3, *["F003"] * 2]
    )


@pytest.mark.parametrize("kind", LIVE_KEYS)
def test_a_credential_is_named_and_never_shown(kind: str, tmp_path: Path) -> None:
    (finding,) = found_after(tmp_path, appended("README.md", f"\n{LIVE_KEYS[kind]}\n"))

    assert finding.rule == "F080"
    assert LIVE_KEYS[kind] not in repr(finding)
    assert LIVE_KEYS[kind][8:20] not in repr(finding)


def test_a_rule_with_many_findings_buries_no_other(tmp_path: Path) -> None:
    findings = found_after(
        tmp_path,
        entry(*(f"a.n{number}: {{severity: critical, description: d}}" for number in range(500))),
        in_turn(*(put(f"zzz{number}") for number in range(150))),
        appended("rubric.py", f"# {RLO}\n"),
    )
    counted = {rule: rules_of(findings).count(rule) for rule in ("F030", "F002", "F070")}

    assert counted == {"F030": 101, "F002": 101, "F070": 1}
    assert [one.message for one in findings if "not listed" in one.message] == [
        "not listed: 50 more findings of this rule",
        "not listed: 400 more findings of this rule",
    ]


def test_no_file_of_a_bench_silences_a_rule(tmp_path: Path) -> None:
    findings = found_after(
        tmp_path,
        in_turn(
            put(
                "pyproject.toml",
                "[tool.codegenie.eval]\nignore = ['F004']\n[tool.codegenie.eval.fence]\nx = 1\n",
            ),
            put(".fenceignore", "*\n"),
            key('"llm"  # noqa: F021 # fence: off # type: ignore'),
            prepended("failure_modes.yaml", "# fence: disable=all\n"),
            entry("a.b: {severity: critical, description: d}  # noqa"),
        ),
    )

    assert rules_of(findings) == ["F002", "F021", "F030", "F004"]


def test_tiers_ask_for_held_out_cases_and_units(tmp_path: Path) -> None:
    gold = replaced("registration.py", '"bronze": 3', '"gold": 3, "silver": 2, "bronze": 1')
    corpus = replaced(TOML, "held-out", "rag-corpus-derived")
    findings = found_after(tmp_path, digested(gold, corpus, more_cases(3)))

    assert [(one.rule, one.severity, one.line) for one in findings] == [
        ("F041", "error", 11),
        ("F042", "warning", 11),
        ("F042", "warning", 11),
    ]
    assert findings[0].message == "declares gold, silver with 2 held-out cases; 5 are needed"
    assert findings[1].message == "the most that 6 units can certify is 0.606; gold usually needs 0.9"


def test_a_case_that_cannot_be_read_is_not_held_against_its_class_twice(tmp_path: Path) -> None:
    silver = replaced("registration.py", '"bronze": 3', '"silver": 3')
    findings = found_after(tmp_path, digested(silver, more_cases(11), appended(TOML, "weight = 1\n")))

    assert rules_of(findings) == ["F051"]


def test_a_run_of_marks_is_not_sorted_to_be_compared(tmp_path: Path) -> None:
    (finding,) = found_after(tmp_path, appended("README.md", f"\nx {MARKS}\n"))

    assert (finding.rule, finding.line, finding.column) == ("F071", 22, 4)
    assert finding.message == "holds more than 30 combining marks in a row"


def test_what_is_left_out_of_a_case_does_not_make_its_digest_stale(tmp_path: Path) -> None:
    second = in_turn(lambda bench: os.link(bench / f"{INPUT}/question.txt", tmp_path / "second"))

    assert rules_of(found_after(tmp_path / "bench", second)) == ["F003"]


def test_a_finding_is_one_printable_line_whatever_it_is_told() -> None:
    notes = Notes("x")
    notes.add("F001", "a\x1bb", "one\ntwo \x1b[2J \N{RIGHT-TO-LEFT OVERRIDE}" + "x" * 9_000, "do\r\nthis")
    (finding,) = notes.findings()

    assert all(text.isprintable() for text in (finding.path, finding.message, finding.fix))
    assert finding.message.startswith("one two ")
    assert len(finding.message) == 400
