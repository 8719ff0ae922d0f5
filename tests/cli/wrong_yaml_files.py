"""Wrong `failure_modes.yaml` and `cases/digests.yaml`."""

import os
from pathlib import Path

from tests.cli.refusals import Refusal, bench_invalid
from tests.support.stub_benches import (
    CASE,
    CASES,
    Edit,
    appended,
    in_place_of,
    prepended,
    removed,
    replaced,
    sparse,
    written,
)

MODES = "failure_modes.yaml"
DIGESTS = "cases/digests.yaml"
ALIAS_BOMB = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{f'*a{n - 1},' * 9}]\n" for n in range(1, 20))


def _modes(sentence: str, edit: Edit, says: str) -> Refusal:
    return Refusal(f"a taxonomy {sentence}", edit, "FailureModeTaxonomyInvalid", says)


def _mode(lines: str) -> Edit:
    return appended(MODES, lines)


def _digests(sentence: str, edit: Edit, says: str) -> Refusal:
    return Refusal(f"digests {sentence}", edit, "DigestManifestInvalid", says)


def _entry(digest: str) -> Edit:
    """Give the entry of the first case another digest."""

    def edit(bench: Path) -> None:
        lines = (bench / DIGESTS).read_text(encoding="utf-8").splitlines()
        lines[0] = f"{CASE}: {digest}"
        (bench / DIGESTS).write_text("\n".join(lines) + "\n", encoding="utf-8")

    return edit


def _second_line_again(bench: Path) -> None:
    text = (bench / DIGESTS).read_text(encoding="utf-8")
    (bench / DIGESTS).write_text(text + text.splitlines()[1] + "\n", encoding="utf-8")


def _without_last_entry(bench: Path) -> None:
    lines = (bench / DIGESTS).read_text(encoding="utf-8").splitlines(keepends=True)
    (bench / DIGESTS).write_text("".join(lines[:-1]), encoding="utf-8")


TAXONOMIES = [
    _modes("with a severity of its own", _mode("a: {severity: critical, description: d}\n"), "'critical'"),
    _modes("with a severity in capitals", _mode("a: {severity: BLOCK, description: d}\n"), "'BLOCK'"),
    _modes("without a severity", _mode("a: {description: d}\n"), "severity None"),
    _modes("whose severity is a mapping", _mode("a: {severity: {x: y}, description: d}\n"), "{'x': 'y'}"),
    _modes("whose severity is a list", _mode("a: {severity: [block], description: d}\n"), "['block']"),
    _modes("without a description", _mode("a: {severity: info}\n"), "Field required"),
    _modes(
        "with an empty description", _mode("a: {severity: info, description: }\n"), "at least 1 character"
    ),
    _modes("with a blank description", _mode('a: {severity: info, description: "  "}\n'), "at least 1"),
    _modes(
        "with no value for a description", _mode("a: {severity: info, description: ~}\n"), "no description"
    ),
    _modes("with a list for a description", _mode("a: {severity: info, description: [d]}\n"), "valid string"),
    _modes(
        "with an endless description", _mode(f"a: {{severity: info, description: {'d' * 2001}}}\n"), "2000"
    ),
    _modes("with a word for an entry", _mode("a: info\n"), "not a mapping"),
    _modes("with a further field", _mode("a: {severity: info, description: d, weight: 1}\n"), "'weight'"),
    _modes("with a code in capitals", _mode("A: {severity: info, description: d}\n"), "does not match"),
    _modes(
        "with an escape in a code", _mode('"\\e[2J": {severity: info, description: d}\n'), "does not match"
    ),
    _modes("that lowers a code of ours", replaced(MODES, "block", "info"), "its severity must be block"),
    _modes(
        "that leaves out a code of ours",
        replaced(MODES, "sut.timeout:", "timeout:"),
        "internal code sut.timeout",
    ),
    _modes(
        "with another code under sut.", _mode("sut.slow: {severity: info, description: d}\n"), "'sut.slow'"
    ),
    _modes(
        "with another code under rubric.", _mode("rubric.x: {severity: info, description: d}\n"), "'rubric.x'"
    ),
    _modes("with a key twice", _mode("answer.wrong: {severity: info, description: d}\n"), "appears twice"),
    _modes("with an anchor", _mode("a: &x {severity: info, description: d}\n"), "anchors and aliases"),
    _modes("with an alias", _mode("a: *x\n"), "anchors and aliases"),
    _modes("that is an alias bomb", written(MODES, ALIAS_BOMB), "line 1: anchors"),
    _modes("that holds itself", written(MODES, "&a [*a]"), "anchors and aliases"),
    _modes("with a tag", _mode("a: !!python/object/apply:os.system [id]\n"), "tags are not allowed"),
    _modes("with a merge key", _mode("a: {<<: {severity: info}, description: d}\n"), "merge keys"),
    _modes("with a list for a key", _mode("? [a]\n: {severity: info, description: d}\n"), "not a plain word"),
    _modes("of two documents", _mode("---\na: b\n"), "more than one YAML document"),
    _modes("that is empty", written(MODES, ""), "empty"),
    _modes("of comments only", written(MODES, "# nothing\n"), "empty"),
    _modes("that is a list", written(MODES, "- a\n- b\n"), "is not a mapping"),
    _modes("that is no YAML", _mode("a: b: c\n"), "not YAML: line"),
    _modes("indented by tabs", _mode("a:\n\tseverity: info\n"), "not YAML: line"),
    _modes("with a control character", _mode("a: \x07\n"), "not YAML"),
    _modes("with a byte order mark", prepended(MODES, b"\xef\xbb\xbf"), "byte order mark"),
    _modes("in UTF-16", written(MODES, "a: b".encode("utf-16")), "not UTF-8"),
    _modes("that is not UTF-8", _mode("a: \udcff".encode("utf-8", "surrogateescape").decode("latin-1")), ""),
    _modes("with half a character", _mode('"\\ud800": {severity: info, description: d}\n'), "not YAML"),
    _modes("33 levels deep", _mode("a: " + "[" * 33 + "]" * 33 + "\n"), "more than 32 levels"),
    _modes("of 250,000 brackets", written(MODES, "[" * 250_000), "more than 32 levels"),
    _modes("of 120,000 dashes", written(MODES, "- " * 120_000), "more than 32 levels"),
    bench_invalid(
        "a taxonomy of 100,000 keys",
        written(MODES, "".join(f"k{n}: v\n" for n in range(100_000))),
        "larger than 262144",
    ),
    bench_invalid("a taxonomy of a tebibyte", in_place_of(MODES, sparse(1 << 40)), "larger than"),
    bench_invalid("a taxonomy that is a pipe", in_place_of(MODES, os.mkfifo), "(other)"),
    bench_invalid("no taxonomy", removed(MODES), "has no failure_modes.yaml"),
]

MANIFESTS = [
    _digests("without the file", removed(DIGESTS), "digests.yaml is missing"),
    _digests("without an entry for a case", _without_last_entry, f"case {CASES[-1]!r} has no entry"),
    _digests("for a case that is not there", appended(DIGESTS, f"gone: blake3:{'0' * 64}\n"), "'gone'"),
    _digests("for a path", appended(DIGESTS, f"../../x: blake3:{'0' * 64}\n"), "'../../x'"),
    _digests("for a case twice", _second_line_again, "appears twice"),
    _digests("for a case twice, in other spelling", appended(DIGESTS, f'"{CASE}": x\n'), "appears twice"),
    _digests("of 63 digits", _entry(f"blake3:{'0' * 63}"), "not blake3:<64 hex digits>"),
    _digests("in capitals", _entry(f"blake3:{'A' * 64}"), "not blake3:<64 hex digits>"),
    _digests("without their prefix", _entry("0" * 64), "not blake3:<64 hex digits>"),
    _digests("of another function", _entry(f"sha256:{'0' * 64}"), "not blake3:<64 hex digits>"),
    _digests("that are a mapping", _entry("{blake3: x}"), "not blake3:<64 hex digits>"),
    _digests("that are a list", written(DIGESTS, f"- {CASE}\n"), "is not a mapping"),
    _digests("that are empty", written(DIGESTS, ""), "has no entry"),
    _digests("that are no YAML", written(DIGESTS, "{"), "not YAML"),
    _digests("with an anchor", _entry(f"&a blake3:{'0' * 64}"), "anchors and aliases"),
    _digests("of 9 MB of commas", written(DIGESTS, "[" + "a," * 4_500_000), "more than the 262144"),
    bench_invalid(
        "a directory named digests.yaml",
        in_place_of(DIGESTS, lambda path: path.mkdir()),
        "digests.yaml: is not a regular file",
    ),
    bench_invalid(
        "digests that are a link",
        in_place_of(DIGESTS, lambda path: path.symlink_to("/etc/passwd")),
        "digests.yaml: is not a regular file",
    ),
    bench_invalid("digests that are a pipe", in_place_of(DIGESTS, os.mkfifo), "not a regular file"),
    bench_invalid(
        "digests with a second name",
        lambda bench: os.link(bench / DIGESTS, bench.parent / "second"),
        "more than one hard link",
    ),
    bench_invalid("digests of a tebibyte", in_place_of(DIGESTS, sparse(1 << 40)), "larger than"),
    Refusal(
        "a digest that is stale",
        _entry(f"blake3:{'0' * 64}"),
        "BenchCaseDigestMismatch",
        f"case {CASE!r} has changed",
        3,
    ),
    Refusal(
        "a case that was edited",
        appended(f"cases/{CASE}/expected/answer.txt", "\n"),
        "BenchCaseDigestMismatch",
        f"case {CASE!r} has changed",
        3,
    ),
]

BENIGN: dict[str, Edit] = {
    "a taxonomy with more codes": _mode("no: {severity: info, description: 'null and void'}\n"),
    "a taxonomy 3 levels deep in flow style": _mode('"a.b": {"severity": "warn", "description": "d: #"}\n'),
    "digests with comments and quotes": replaced(DIGESTS, f"{CASE}:", f"# first\n'{CASE}' :"),
}
