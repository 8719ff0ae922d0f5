"""What `doctor` prints: a row for each class, its probes, the machine, and what to do."""

from dataclasses import replace

from codegenie.eval.isolation_proof import (
    REQUIRED_PROBES,
    BoxFinding,
    BoxProof,
    ClassFinding,
    ProbeResult,
    strongest,
)
from codegenie.eval.reporting.doctor_text import render_doctor, render_room
from tests.support.gate import proof

BARE = ClassFinding("subprocess", proof("subprocess"))
DENIED = ClassFinding("namespace", None, "no such call", ("do this: `sudo it`", "or that"), lacking=True)
DISTURBED = ClassFinding("namespace", None, "'fork' was not blocked", ("run again",))
LANDLOCK = ClassFinding("landlock", proof("landlock"))
MACHINE = {"kernel": "6.12", "landlock_abi": 7, "seccomp": True, "superuser": False, "container": None}


def test_each_class_has_a_row_that_says_what_came_of_it() -> None:
    lines = render_doctor([DENIED, LANDLOCK, BARE], MACHINE)

    assert lines[:6] == [
        "class        result",
        "namespace    not proved: no such call",
        f"landlock     proved: {len(REQUIRED_PROBES['landlock'])} probes blocked",
        "subprocess   needs no proof: it has limits and a private directory, and no confinement",
        "",
        "auto takes   landlock",
    ]


def test_each_probe_has_a_row_with_a_word_for_each_class_that_was_proved() -> None:
    whole = ClassFinding("namespace", proof("namespace"))
    lines = render_doctor([whole, LANDLOCK, BARE], MACHINE)

    assert f"{'probe':38} namespace    landlock" in lines
    assert f"{'tcp-connect':38} blocked      blocked" in lines
    assert f"{'stat-outside':38} blocked      -" in lines


def test_a_probe_that_is_not_required_and_got_through_is_open() -> None:
    assert LANDLOCK.proof is not None
    first, *rest = LANDLOCK.proof.probes
    changed = LANDLOCK.proof.model_copy(
        update={"probes": (first.model_copy(update={"blocked": False}), *rest)}
    )

    assert f"{first.name:38} open" in render_doctor([ClassFinding("landlock", changed)], MACHINE)


def test_the_machine_is_told_in_words() -> None:
    lines = render_doctor([BARE], MACHINE)

    assert lines[-5:] == [
        f"{'kernel':38} 6.12",
        f"{'landlock_abi':38} 7",
        f"{'seccomp':38} yes",
        f"{'superuser':38} no",
        f"{'container':38} -",
    ]


def test_what_is_to_be_done_stands_at_the_end_under_the_name_of_its_class() -> None:
    lines = render_doctor([DENIED, LANDLOCK, BARE], MACHINE)

    assert lines[-4:] == ["", "for namespace:", "  do this: `sudo it`", "  or that"]
    assert "for landlock:" not in lines


def test_auto_takes_the_first_class_that_the_machine_does_not_lack_if_it_was_proved() -> None:
    assert strongest([DENIED, LANDLOCK, BARE]) == "landlock"
    assert strongest([DENIED]) is None
    assert strongest([DISTURBED, LANDLOCK, BARE]) is None


def test_auto_takes_nothing_that_has_to_be_asked_for_by_name_and_says_so() -> None:
    lacking = [DENIED, replace(LANDLOCK, proof=None, lacking=True)]
    by_name = [*lacking, replace(BARE, by_name_only=True)]

    assert strongest([*lacking, BARE]) == "subprocess"
    assert strongest(by_name) is None
    assert any(line.startswith("auto takes   nothing: ") for line in render_doctor(by_name, {}))


def test_boxes_of_agents_have_rows_and_remedies_of_their_own() -> None:
    probes = (ProbeResult(name="secret-file", blocked=True),)
    found = BoxProof(isolation_class="namespace", network="broker", kernel="6.12", probes=probes)
    boxes = [BoxFinding("namespace", found), BoxFinding("landlock", None, "too old", ("a newer kernel",))]
    lines = render_doctor([LANDLOCK, BARE], MACHINE, boxes)

    at = lines.index("boxes        result")
    assert lines[at + 1 : at + 4] == [
        "namespace    proved: 1 probe of a thief blocked",
        "landlock     not proved: too old",
        "",
    ]
    assert lines[-2:] == ["for boxes of landlock:", "  a newer kernel"]


def test_it_says_how_many_agents_fit_at_once_and_how_to_make_room_for_more() -> None:
    lines = render_room({"by_processes": None, "by_open_files": 52, "by_memory": 0})

    assert lines[1:] == [
        "agents at once",
        "processes    no limit",
        "open files   52; for more, raise the limit with `ulimit -n`",
        "memory       0; for more, lower memory_total_bytes in sut.toml; no run is refused for memory",
    ]
