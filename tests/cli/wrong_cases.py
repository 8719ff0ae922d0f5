"""Wrong `case.toml`."""

import re
from pathlib import Path

from tests.cli.refusals import Refusal, bad_case
from tests.support.stub_benches import CASE, Edit, appended, digested, in_place_of, removed, written

TOML = f"cases/{CASE}/case.toml"


def _field(name: str, value: str | None) -> Edit:
    """Give one field another value, or remove it, and digest the case anew."""

    def edit(bench: Path) -> None:
        path = bench / TOML
        lines = [
            line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith(f"{name} ")
        ]
        path.write_text("\n".join(lines + ([] if value is None else [f"{name} = {value}"])), encoding="utf-8")

    return digested(edit)


def _toml(sentence: str, content: str | bytes, says: str) -> Refusal:
    return bad_case(f"whose case.toml {sentence}", digested(written(TOML, content)), says)


REQUIRED = ("disposition", "difficulty", "source", "curation_class", "added_at", "last_validated_at")

FIELDS = [
    *(bad_case(f"without {name}", _field(name, None), f"{name}: Field required") for name in REQUIRED),
    *(
        bad_case(f"with a number for {name}", _field(name, "1"), f"{name}: Input should be")
        for name in REQUIRED
    ),
    *(bad_case(f"with a word of its own for {name}", _field(name, '"x"'), f"{name}: ") for name in REQUIRED),
    bad_case("without a case_id", _field("case_id", None), "case_id is None"),
    bad_case("without a task_class", _field("task_class", None), "task_class = None"),
    bad_case("of another id than its directory", _field("case_id", '"other"'), "case_id is 'other'"),
    bad_case("with a path for an id", _field("case_id", '"../../x"'), "case_id is '../../x'"),
    bad_case("with an id of 9,000 digits", _field("case_id", "0x" + "f" * 9_000), "more than 4096 bits"),
    Refusal(
        "a case that claims the id of another",
        _field("case_id", '"off_by_one"'),
        "BenchCaseIDCollision",
        "case_id is 'off_by_one'",
    ),
    bad_case("of another task class", _field("task_class", '"other"'), "task_class = 'other'"),
    bad_case("with a family in capitals", _field("family", '"A"'), "family: "),
    bad_case("with an empty family", _field("family", '""'), "family: "),
    bad_case("with a list for a family", _field("family", '["a"]'), "family: "),
    bad_case(
        "from a ledger without a commit",
        _field("source", '"outcome-ledger-derived"'),
        "commit_sha is required",
    ),
    bad_case("with a branch for a commit", _field("commit_sha", '"main"'), "commit_sha: "),
    bad_case("with a moment for a date", _field("added_at", "2026-11-15T00:00:00Z"), "added_at: "),
    bad_case("with a quoted date", _field("added_at", '"2026-11-15"'), "added_at: "),
    bad_case("dated the 30th of February", _field("added_at", "2026-02-30"), "not TOML"),
    bad_case("dated in the year 0", _field("added_at", "0000-01-01"), "not TOML"),
    bad_case(
        "whose rubric has 0 seconds", _field("rubric_wall_clock_seconds", "0"), "rubric_wall_clock_seconds: "
    ),
    bad_case("whose rubric has 301 seconds", _field("rubric_wall_clock_seconds", "301"), "equal to 300"),
    bad_case("whose rubric has -1 seconds", _field("rubric_wall_clock_seconds", "-1"), "equal to 1"),
    bad_case("whose rubric has true seconds", _field("rubric_wall_clock_seconds", "true"), "valid integer"),
    bad_case("whose rubric has 1.5 seconds", _field("rubric_wall_clock_seconds", "1.5"), "valid integer"),
    bad_case("whose rubric has for ever", _field("rubric_wall_clock_seconds", "inf"), "out of range"),
    bad_case(
        "whose rubric has a quoted number", _field("rubric_wall_clock_seconds", '"60"'), "valid integer"
    ),
    bad_case("whose agent has 0 seconds", _field("sut_wall_clock_seconds", "0"), "sut_wall_clock_seconds: "),
    bad_case("whose agent has 14,401 seconds", _field("sut_wall_clock_seconds", "14401"), "equal to 14400"),
    bad_case("whose agent has nan seconds", _field("sut_wall_clock_seconds", "nan"), "out of range"),
    bad_case("that is to be skipped", _field("skip", "true"), "skip: Extra inputs"),
    bad_case("that weighs more", _field("weight", "1e308"), "weight: Extra inputs"),
    bad_case("with a rubric of its own", _field("rubric", '"../other/rubric.py"'), "rubric: Extra inputs"),
    bad_case("that says its own digest", _field("digest", f'"{"0" * 64}"'), "digest: is computed"),
    bad_case("with an escape for a key", _field(r'"\u001b[2J"', "1"), "Extra inputs"),
    bad_case("with a table", digested(appended(TOML, "[more]\na = 1\n")), "more: Extra inputs"),
]

SYNTAX = [
    _toml("is empty", "", "case_id is None"),
    _toml("is no TOML", "case_id adds_up", "not TOML"),
    _toml("says a thing twice", 'case_id = "a"\ncase_id = "a"\n', "not TOML"),
    _toml("is one dotted key of 64 KB", ".".join(["a"] * 32_000) + " = 1", "more than the 16384 allowed"),
    _toml("is one dotted key of 16 KB", ".".join(["a"] * 8_000) + " = 1", "more than 64 dots"),
    _toml(
        "hides its dots behind line separators", ".".join(['"\u2028"'] * 2_000) + " = 1", "not shown as one"
    ),
    _toml("is 8,000 brackets", "a = " + "[" * 8_000, "nested too deeply"),
    _toml("is 33 tables deep", "a = " + "[" * 33 + "]" * 33, "more than 32 levels"),
    _toml("holds 5,000 digits", "a = " + "9" * 5_000, "not TOML"),
    _toml("starts with a byte order mark", b"\xef\xbb\xbfa = 1", "byte order mark"),
    _toml("is UTF-16", "a = 1".encode("utf-16"), "not UTF-8"),
    _toml("is not UTF-8", b'a = "\xff"', "not UTF-8 at byte 5"),
    _toml("holds a NUL", b'a = "\0"', "not TOML"),
    _toml("holds a lone carriage return", b"a = 1\rb = 2", "not shown as one"),
    bad_case("without a case.toml", digested(removed(TOML)), "has no case.toml"),
    bad_case(
        "whose case.toml is a directory", in_place_of(TOML, lambda path: path.mkdir()), "has no case.toml"
    ),
]


def _other_layout(bench: Path) -> None:
    """Write the same fields so that the whole grammar of TOML is needed to read them."""
    text = (bench / TOML).read_text(encoding="utf-8")
    (bench / TOML).write_text(re.sub(r"^(\w+) = ", r'"\1"  =   ', text, flags=re.MULTILINE), encoding="utf-8")


BENIGN: dict[str, Edit] = {
    "a case with every optional field": digested(
        _field("family", '"sums"'),
        _field("commit_sha", '"abcdef0"'),
        _field("source", '"regression-converted"'),
        _field("rubric_wall_clock_seconds", "300"),
        _field("sut_wall_clock_seconds", "14_400"),
    ),
    "a case.toml in another layout": digested(_other_layout),
}
