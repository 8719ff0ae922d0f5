"""Every rule of the fence, with its reason. The id of a rule is never reused."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Level = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule for benches: what it demands, why, and how to fix a violation."""

    title: str
    why: str
    do: str
    severity: Level = "error"
    fixable: bool = False


_DIGEST = "write it with `codegenie eval digest TASK_CLASS --write` once you know why"

RULES: Mapping[str, Rule] = {
    "F001": Rule(
        "a part of the bench is missing",
        "The directory contract is what makes a bench loadable, and the README is what makes it reviewable.",
        "add it; see docs/reference/bench.md",
    ),
    "F002": Rule(
        "something lies there that is not part of a bench",
        "A file outside the contract has no digest, and no reviewer looks for it (threats BL-04, BL-18).",
        "remove it; further modules of the rubric belong in rubric_lib/",
    ),
    "F003": Rule(
        "a file that the harness does not open",
        "Links, pipes, odd names and oversized files read differently on another machine, lead out of the"
        " bench or never end (threats CA-01, CA-09, CA-10; ADR-0002).",
        "make it a regular file with a plain ASCII name, within docs/reference/limits.md",
    ),
    "F004": Rule(
        "a file that configures a tool or is run by one",
        "Test runners, interpreters, package managers and git act on files by name, wherever they lie: a pull"
        " request could run or hide something that its reviewer does not expect (threats BL-01, BL-04,"
        " CI-03).",
        "remove it; keep the configuration of tools outside of benches",
    ),
    "F005": Rule(
        "data of a case that a tool would run by accident",
        "A test runner or an interpreter that comes across it imports it (threat BL-01). A case may need such"
        " a file, so this is a warning.",
        "keep test runners away from the bench, or rename the file and name it in the task",
        severity="warning",
    ),
    "F006": Rule(
        "an executable bit where nothing is executed",
        "The harness gives files to an interpreter, which needs no such bit: the file is meant"
        " to be started in another way.",
        "remove the bit: chmod -x",
        fixable=True,
    ),
    "F007": Rule(
        "compiled code",
        "A reviewer cannot read it, and an interpreter may prefer it to the source beside it (threat BL-04).",
        "remove it",
    ),
    "F008": Rule(
        "the directory's name is not that of a task class",
        "Names are ASCII so that two of them cannot look alike (threat UI-07).",
        "rename it to match [a-z0-9][a-z0-9_-]{0,63}",
    ),
    "F009": Rule(
        "two task classes of one name",
        "A run that asks for the name would get one of them by chance (threat BL-08).",
        "rename one of them",
    ),
    "F010": Rule(
        "registration.py is more than one literal registration",
        "It is read as a syntax tree and never run; what is not literal could say different things to"
        " different readers (threats BL-01, BL-07; ADR-0002).",
        "write it in the form of docs/reference/bench.md",
    ),
    "F011": Rule(
        "the rubric does not compile",
        "A rubric that does not compile cannot judge a case: every case of a run would be a fault of the"
        " bench, after the agent was asked. The fence compiles it in a process of its own and never runs it"
        " (ADR-0002).",
        "correct the line; rubric.py and rubric_lib/ must be Python of the version that runs the harness",
    ),
    "F012": Rule(
        "the rubric can run code",
        "A rubric that runs an agent's code shares a process with it: the code can then write the verdict"
        " itself (ADR-0035). Steps of the case execute it in a box of its own.",
        "execute it by an [[execute]] step of the case, and judge what the request says about it; import the"
        " standard library and rubric_lib/ only",
    ),
    "F020": Rule(
        "breakdown_keys.py is more than one enumeration of literals",
        "Keys are read and never computed (ADR-0002, ADR-0008).",
        "write it in the form of docs/reference/bench.md",
    ),
    "F021": Rule(
        "a breakdown key holds a banned word, or looks as if it did",
        "A key that reports how sure a system is of itself lets it grade itself; the ban also"
        " finds it behind look-alike letters and separators (threat BL-09; ADR-0008).",
        "name what the rubric itself has measured",
    ),
    "F030": Rule(
        "an entry of failure_modes.yaml is not valid",
        "The taxonomy decides which failure makes a case score 0; an incomplete entry cannot decide it"
        " (ADR-0004).",
        "give it severity block, warn or info and a description",
    ),
    "F031": Rule(
        "one of the runner's seven codes is missing or lowered, or its prefix is used",
        "A bench that lowers them turns crashes and timeouts into notes (threats BL-05, BL-06; ADR-0004).",
        "declare all seven with severity block, and no other code under sut. and rubric.",
    ),
    "F040": Rule(
        "fewer cases than the bench itself asks for",
        "A bench without enough cases measures nothing, and its tier can never be reached (threat BL-20).",
        "add cases, or ask for fewer in min_cases_for_promotion",
    ),
    "F041": Rule(
        "too few held-out cases for the tier that is declared",
        "Cases from a corpus that agents can search measure memory, not skill (ADR-0006).",
        "add held-out cases, or declare no tier above the lowest",
    ),
    "F042": Rule(
        "too few units to certify the tier that is declared",
        "Families are the statistical units; even if all of them pass, the certified bound stays below the"
        " tier's usual threshold (ADR-0009).",
        "add cases of new families; 14, 29 and 59 perfect units certify 0.8, 0.9 and 0.95",
        severity="warning",
    ),
    "F050": Rule(
        "a directory among the cases whose name is not a case id",
        "Ids appear in reports and logs; they are plain so that no id looks like another (threat UI-07).",
        "rename it to match [a-z0-9][a-z0-9_-]{0,63}",
    ),
    "F051": Rule(
        "case.toml does not follow the contract",
        "Limits, families and curation classes of a case decide how it counts (threat BL-16; ADR-0006).",
        "see docs/reference/bench.md for the fields",
    ),
    "F052": Rule(
        "a pointer instead of a file",
        "A Git LFS pointer names content that lies elsewhere and can change after review (threat CA-17).",
        "put the content itself into the case",
    ),
    "F053": Rule(
        "a step runs a test suite together with the agent's code",
        "The tests and the code that they test share a process, so what the suite reports is the agent's own"
        " word (ADR-0035). Whether that is enough is for a reviewer to say, so this is a warning.",
        "use a step of kind python-calls, or a program whose output the rubric compares",
        severity="warning",
    ),
    "F060": Rule(
        "digests.yaml cannot be read",
        "Without it no case is pinned to what was reviewed (ADR-0005).",
        "remove it and " + _DIGEST,
    ),
    "F061": Rule(
        "the digest of a case is stale",
        "The bytes are not those that were pinned: the case was edited, or its entry was (ADR-0005).",
        "look at what changed; if the change is intended, " + _DIGEST,
        fixable=True,
    ),
    "F062": Rule(
        "a case without a digest",
        "A case that is not pinned can change after review (threat CA-04; ADR-0005).",
        _DIGEST,
        fixable=True,
    ),
    "F063": Rule(
        "a digest without a case",
        "A case that was removed leaves its entry behind: the denominator has changed"
        " (threats CA-04, CA-12; ADR-0003).",
        "restore the case, or " + _DIGEST,
        fixable=True,
    ),
    "F070": Rule(
        "an invisible character",
        "Bidirectional, zero-width and control characters make a text look different from what a program"
        " reads (threat BL-17).",
        "remove it; if a case is about such characters, write them escaped",
    ),
    "F071": Rule(
        "text that is not in normal form (NFC)",
        "Two texts that look alike and differ in their bytes defeat review and comparison (threat BL-17).",
        "normalise it; if a case is about normal forms, write its text escaped",
    ),
    "F072": Rule(
        "a Python name that is not what it looks like",
        "Letters of two scripts in one name, or a name that Python reads as another (threat BL-17).",
        "write the name in one script, in the form in which Python reads it",
    ),
    "F073": Rule(
        "a file that must be text and is not",
        "What a reviewer cannot read, or reads in another encoding than Python does, is not reviewed"
        " (threat BL-17).",
        "write it as UTF-8 without a coding comment",
    ),
    "F080": Rule(
        "a credential",
        "A bench is copied, published and logged; what looks like a live key must be treated as one.",
        "revoke it and remove it; if a case needs one, write one that no scanner takes for a real one",
    ),
}
