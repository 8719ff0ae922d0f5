"""Judge one changed requirements file: the named pin moved to a good release, and nothing else moved.

The output under judgement is hostile by assumption. It is read as text and compared, never run,
imported or used as a path, and no word of it (nor of the expected answer) goes into a detail.
A pass has exactly one shape: the expected file, byte for byte, with an accepted release in the
place of the old one. All the parsing below only decides *how* anything else failed.
"""

from __future__ import annotations

import json
import re

from codegenie_rubric import emit, read_case

TYPE_CHECKING = False  # read as true by type checkers, without the cost of importing `typing`
if TYPE_CHECKING:
    from typing import TypedDict

    class Answer(TypedDict):
        """The file expected/answer.json. In a negative case the only accepted release is the pinned one."""

        package: str
        pinned: str
        acceptable: list[str]
        affected: list[str]
        yanked: list[str]
        untouched_before: list[str]
        pin: str
        untouched_after: list[str]


FILE_NAME = "requirements.txt"
# The longest input has 102 characters; the caps keep the patterns below cheap on any text.
MAX_CHARACTERS = 16_384
MAX_LINE_CHARACTERS = 256

NOT_PLAIN_TEXT = re.compile(r"[^\n -~]|\\")  # a backslash would join two lines into one
COMMENT = re.compile(r" *#.*")
# pip decodes the file as such a comment says, so with one the bytes may hide another file.
CODING_COOKIE = re.compile(r"coding[:=]")
PIN = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._-]{0,63}) {0,4}== {0,4}([A-Za-z0-9.!+_-]{1,64})(?: {0,4}| {1,4}#.*)"
)


class RefusedError(Exception):
    """The output holds no single pin to judge; `code` and `detail` say why."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail


def main() -> None:
    """Judge the request on standard input."""
    request = read_case()
    with open(f"{request.expected_dir}/answer.json", encoding="utf-8") as file:
        answer: Answer = json.load(file)
    try:
        text, others_changed = changed_text(request.harness_output, answer)
        version = pinned_version(text, answer["package"])
    except RefusedError as refusal:
        breakdown = {"fixed": 0.0, "minimal": 0.0, "parses": 0.0}
        emit(passed=False, score=0.0, breakdown=breakdown, failures=[(refusal.code, refusal.detail)])
        return
    fixed = version in answer["acceptable"]
    minimal = text == expected_text(answer, version) and not others_changed
    failures = failures_of(answer, version, minimal=minimal)
    emit(
        passed=fixed and minimal,
        score=score_of(answer, fixed=fixed, minimal=minimal),
        breakdown={"fixed": float(fixed), "minimal": float(minimal), "parses": 1.0},
        failures=failures,
    )


def expected_text(answer: Answer, version: str) -> str:
    """Return the file as it was given, with `version` in the one pin that may change."""
    pin = answer["pin"].replace("{version}", version)
    return "\n".join([*answer["untouched_before"], pin, *answer["untouched_after"], ""])


def changed_text(output: dict[str, object], answer: Answer) -> tuple[str, bool]:
    """Return the text of the file after the agent's work, and whether it changed any other file.

    An output without `files` changed nothing. Whatever else the output holds is the agent's
    opinion of itself and is not looked at.
    """
    files = output.get("files", {})
    if not isinstance(files, dict):
        raise RefusedError("pin.malformed_output", "files is not an object of path to text")
    text = files.get(FILE_NAME, expected_text(answer, answer["pinned"]))
    if text is None:
        raise RefusedError("pin.missing", "the requirements file was deleted")
    if not isinstance(text, str):
        raise RefusedError("pin.malformed_output", "the requirements file is not text")
    return text, any(name != FILE_NAME for name in files)


def pinned_version(text: str, package: str) -> str:
    """Return the one version that `text` pins `package` to, if the text is nothing but plain pins."""
    if len(text) > MAX_CHARACTERS:
        raise RefusedError("pin.not_plain", "the file is too long")
    if NOT_PLAIN_TEXT.search(text):
        raise RefusedError("pin.not_plain", "a backslash, a control character or one outside ASCII")
    versions = []
    for line in text.split("\n"):
        name, version = parsed_line(line)
        if name == package:
            versions.append(version)
    if not versions:
        raise RefusedError("pin.missing", "the package is not pinned any more")
    if len(versions) > 1:
        raise RefusedError("pin.ambiguous", "the package is pinned more than once")
    return versions[0]


def parsed_line(line: str) -> tuple[str, str]:
    """Return the normalised name and the version that a line pins, or two empty strings for a comment."""
    if len(line) > MAX_LINE_CHARACTERS:
        raise RefusedError("pin.not_plain", "a line is too long")
    if CODING_COOKIE.search(line):
        raise RefusedError("pin.not_plain", "a comment that changes how the file is decoded")
    if not line.strip(" ") or COMMENT.fullmatch(line):
        return "", ""
    match = PIN.fullmatch(line)
    if match is None:
        raise RefusedError("pin.not_plain", "a line that is neither a comment nor name==version")
    # Names are compared as the index compares them: case, dots, dashes and underscores do not count.
    return re.sub(r"[-_.]+", "-", match[1]).lower(), match[2]


def failures_of(answer: Answer, version: str, *, minimal: bool) -> list[tuple[str, str, str]]:
    """Return what is wrong with a file that could be read, worst first."""
    wrong_version = version not in answer["acceptable"]
    if is_negative(answer):
        needless = wrong_version or not minimal
        return [("pin.not_needed", "block", "nothing had to change")] if needless else []
    failures = []
    if wrong_version:
        failures.append(wrong_version_failure(answer, version))
    if not minimal:
        failures.append(("pin.collateral_change", "warn", "more than the version of the pin was changed"))
    return failures


def wrong_version_failure(answer: Answer, version: str) -> tuple[str, str, str]:
    """Return why `version` is not accepted."""
    if version in answer["affected"]:
        return ("pin.still_vulnerable", "block", "the advisory covers the pinned release")
    if version in answer["yanked"]:
        return ("pin.yanked", "block", "the pinned release was withdrawn")
    return ("pin.wrong_release", "block", "not a later final release of the same line")


def score_of(answer: Answer, *, fixed: bool, minimal: bool) -> float:
    """Return 1 for a pass, and half of it for a right pin in a file where more was changed."""
    if fixed and minimal:
        return 1.0
    return 0.5 if fixed and not is_negative(answer) else 0.0


def is_negative(answer: Answer) -> bool:
    """Return whether the pin was not affected to begin with."""
    return answer["acceptable"] == [answer["pinned"]]


if __name__ == "__main__":
    main()
