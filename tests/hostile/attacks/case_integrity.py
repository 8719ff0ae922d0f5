"""Cases that hold what is no file of theirs, or that are not the ones on the list."""

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

from codegenie.eval.ports import SutCase
from tests.hostile.attackers.changed_benches import (
    SECRET,
    Agent,
    all_met,
    attempt,
    bench_with,
    met,
    undeserved,
)
from tests.hostile.engine.stage import Outcome, attack, files_that_hold, twin
from tests.support.benches import TASK_CLASS, CaseFiles
from tests.support.stub_benches import (
    Edit,
    appended,
    digested,
    everything_below,
    in_place_of,
    in_turn,
    link,
    reference_digest,
    removed,
    replaced,
    sparse,
    written,
)

INPUT = "cases/one/input"
ANSWER = "cases/one/expected/answer.txt"
HEAD = "cases/one/case.toml"
MANIFEST = "cases/digests.yaml"
NO_IDEA = "no idea"


def _handed_over(room: Path, edit: Edit, answer: str = "it is one") -> Outcome:
    """Run a case in which somebody planted something; the harm is that the agent is given a secret."""
    (room / "secret").write_bytes(SECRET)
    found: list[str] = []

    def search(case: SutCase) -> None:
        found.extend(files_that_hold(SECRET, Path(case.input_dir).parent))

    case = CaseFiles("one", {"expected/answer.txt": answer, "solution/said.txt": answer})
    bench_with(room, edit, cases=[case])
    result = met(attempt(room, Agent(room, answer, search)))
    where = Path(found[0]).relative_to(Path(found[0]).parents[1]) if found else None
    return Outcome(result, f"the agent found it in {where}" if where else None)


@attack("link_to_the_answer")
def link_to_the_answer(room: Path) -> Outcome:
    targets = ("../expected/answer.txt", str(room / "secret"), "../../../../../secret")
    return all_met(
        _handed_over(room, digested(link(f"{INPUT}/notes.txt", target)), SECRET.decode())
        for target in targets
    )


@twin("link_to_the_answer")
def file_of_its_own(room: Path) -> Outcome:
    return _handed_over(room, digested(written(f"{INPUT}/notes.txt", "../expected/answer.txt")))


@attack("link_to_a_directory")
def link_to_a_directory(room: Path) -> Outcome:
    # The digest is that of the same files without a link, which is what a walk through the link sees.
    notes = f"{INPUT}/notes"
    copied = digested(lambda bench: shutil.copytree(bench / "cases/one/expected", bench / notes))
    linked = in_place_of(notes, lambda path: path.symlink_to("../expected"))
    return _handed_over(room, in_turn(copied, linked), SECRET.decode())


@twin("link_to_a_directory")
def directory_of_its_own(room: Path) -> Outcome:
    return _handed_over(room, digested(lambda bench: sparse(9)(bench / INPUT / "notes" / "deeper" / "file")))


@attack("second_name_of_a_secret")
def second_name_of_a_secret(room: Path) -> Outcome:
    return _handed_over(room, digested(lambda bench: os.link(room / "secret", bench / INPUT / "notes.txt")))


@twin("second_name_of_a_secret")
def copy_of_an_open_letter(room: Path) -> Outcome:
    letter = room / "letter"
    letter.write_text("for everybody", encoding="utf-8")
    return _handed_over(room, digested(lambda bench: shutil.copy(letter, bench / INPUT / "notes.txt")))


@attack("directory_that_holds_itself")
def directory_that_holds_itself(room: Path) -> Outcome:
    bench_with(room, link(f"{INPUT}/again", "."), link(f"{INPUT}/and-again", "."))
    try:
        answer = met(attempt(room, Agent(room)))
    except RecursionError as error:
        answer = type(error).__name__
    blamed = not answer.startswith("Bench")
    return Outcome(answer, f"walking through it ends in {answer}" if blamed else None)


@twin("directory_that_holds_itself")
def directories_of_one_name(room: Path) -> Outcome:
    return _handed_over(
        room, digested(lambda bench: sparse(9)(bench / INPUT / "again" / "again" / "again" / "file"))
    )


def _socket(path: Path) -> None:
    # Bound through a descriptor: the whole path may be too long for an address.
    folder = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)


@attack("pipe_in_a_case")
def pipe_in_a_case(room: Path) -> Outcome:
    makers: tuple[Callable[[Path], None], ...] = (os.mkfifo, _socket)
    outcomes = []
    for make in makers:
        make(bench_with(room) / INPUT / "notes.txt")
        outcomes.append(Outcome(met(attempt(room, Agent(room)))))
    return all_met(outcomes)


@twin("pipe_in_a_case")
def empty_file_in_a_case(room: Path) -> Outcome:
    return _handed_over(room, digested(written(f"{INPUT}/notes.txt", "")))


@attack("file_of_a_tebibyte")
def file_of_a_tebibyte(room: Path) -> Outcome:
    bench_with(room, lambda bench: sparse(1 << 40)(bench / INPUT / "huge.bin"))
    return Outcome(met(attempt(room, Agent(room))))


@twin("file_of_a_tebibyte")
def file_of_a_mebibyte(room: Path) -> Outcome:
    return _handed_over(room, digested(lambda bench: sparse(1 << 20)(bench / INPUT / "large.bin")))


def _named(room: Path, name: bytes) -> Outcome:
    bench_with(room, digested(lambda bench: _touch(os.fsencode(bench / INPUT) + b"/" + name)))
    try:
        answer = met(attempt(room, Agent(room)))
    except UnicodeError as error:
        answer = type(error).__name__
    return Outcome(
        answer, None if answer.startswith(("Bench", "passed")) else f"{name!r} ends the run: {answer}"
    )


def _touch(path: bytes) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))


@attack("name_that_is_no_text")
def name_that_is_no_text(room: Path) -> Outcome:
    names = (
        b"\xff.txt",
        b"\xed\xa0\x80",
        "\u0430nswer.txt".encode(),
        b"\x1b[2J",
        b"a\nb",
        b"a ",
        b"a\\b",
        b"\x7f",
    )
    return all_met(_named(room, name) for name in names)


@twin("name_that_is_no_text")
def name_of_odd_characters(room: Path) -> Outcome:
    return all_met(_named(room, name) for name in (b"[id].tsx", b"-a+b=c,d@e f.txt", b"...", b"~", b"a:b*?"))


@attack("deleted_case")
def deleted_case(room: Path) -> Outcome:
    bench_with(room, removed("cases/hard"), cases=("easy", "hard"))
    result = attempt(room, Agent(room))
    if isinstance(result, str):
        return Outcome(result)
    return Outcome(met(result), f"a run of {result.selection.kind} cases passes without the hard one")


@twin("deleted_case")
def deleted_case_and_entry(room: Path) -> Outcome:
    bench_with(room, digested(removed("cases/hard")), cases=("easy", "hard"))
    return Outcome(met(attempt(room, Agent(room))))


def _another_case(bench: Path) -> None:
    shutil.copytree(bench / "cases" / "one", bench / "cases" / "filler")
    replaced("cases/filler/case.toml", '"one"', '"filler"')(bench)
    written("cases/filler/expected/answer.txt", "it is filler")(bench)


@attack("unlisted_case")
def unlisted_case(room: Path) -> Outcome:
    bench_with(room, _another_case)
    agent = Agent(room)
    answer = met(attempt(room, agent))
    return Outcome(answer, "a case that nobody listed was measured" if "filler" in agent.asked else None)


@twin("unlisted_case")
def listed_case(room: Path) -> Outcome:
    bench_with(room, digested(_another_case))
    return Outcome(met(attempt(room, Agent(room))))


@attack("digest_said_twice")
def digest_said_twice(room: Path) -> Outcome:
    outcomes = []
    for first in (True, False):
        directory = bench_with(room, written(ANSWER, NO_IDEA))
        reviewed = (directory / MANIFEST).read_text(encoding="utf-8")
        edited = f"one: blake3:{reference_digest(directory / 'cases' / 'one')}\n"
        written(MANIFEST, edited + reviewed if first else reviewed + edited)(directory)
        outcomes.append(undeserved(attempt(room, Agent(room, NO_IDEA))))
    return all_met(outcomes)


@twin("digest_said_twice")
def digest_said_once(room: Path) -> Outcome:
    bench_with(room, digested())
    return Outcome(met(attempt(room, Agent(room))))


@attack("digests_kept_elsewhere")
def digests_kept_elsewhere(room: Path) -> Outcome:
    """Keep the list of digests where no review of the bench sees it change."""
    directory = bench_with(room, digested(written(ANSWER, NO_IDEA)))
    shutil.move(directory / MANIFEST, room / "elsewhere.yaml")
    link(MANIFEST, str(room / "elsewhere.yaml"))(directory)
    return undeserved(attempt(room, Agent(room, NO_IDEA)))


@twin("digests_kept_elsewhere")
def digests_copied_from_elsewhere(room: Path) -> Outcome:
    directory = bench_with(room)
    shutil.move(directory / MANIFEST, room / "elsewhere.yaml")
    shutil.copy(room / "elsewhere.yaml", directory / MANIFEST)
    return Outcome(met(attempt(room, Agent(room))))


@attack("id_with_a_path")
def id_with_a_path(room: Path) -> Outcome:
    """Name a case by a way out of the outcome store that leads back to the case."""
    ids = (
        f"../../../bench/{TASK_CLASS}/cases/one",
        "../cases/one",
        "one/",
        "./one",
        "one.",
        "one\\u0000",
        "ONE",
    )
    outcomes = []
    for claimed in ids:
        directory = bench_with(room, digested(replaced(HEAD, 'case_id = "one"', f'case_id = "{claimed}"')))
        before = everything_below(directory)
        try:
            answer = met(attempt(room, Agent(room), cache_dir=room / "cache"))
        except ValueError as error:
            answer = type(error).__name__
        planted = sorted(set(everything_below(directory)) - set(before))
        outcomes.append(
            Outcome(answer, f"the store wrote {planted[0][:60]} into the bench" if planted else None)
        )
    return all_met(outcomes)


@twin("id_with_a_path")
def id_with_dashes(room: Path) -> Outcome:
    bench_with(room, cases=("0_a-b",))
    return Outcome(met(attempt(room, Agent(room), cache_dir=room / "cache")))


@attack("case_counted_twice")
def case_counted_twice(room: Path) -> Outcome:
    """Let a copy of a case claim the id of the first."""
    bench_with(room, digested(lambda bench: shutil.copytree(bench / "cases/one", bench / "cases/copy")))
    result = attempt(room, Agent(room))
    if isinstance(result, str):
        return Outcome(result)
    return Outcome(met(result), f"one case is counted as {result.passed_count} passed cases")


@twin("case_counted_twice")
def two_cases(room: Path) -> Outcome:
    bench_with(room, digested(_another_case))
    return Outcome(met(attempt(room, Agent(room))))


@attack("case_of_another_class")
def case_of_another_class(room: Path) -> Outcome:
    bench_with(room, digested(replaced(HEAD, TASK_CLASS, "honest-class")))
    answer = met(attempt(room, Agent(room), cache_dir=room / "cache"))
    place = room / "cache" / "outputs" / "honest-class"
    return Outcome(answer, "it keeps outcomes in the place of another class" if place.exists() else None)


@twin("case_of_another_class")
def case_of_its_class(room: Path) -> Outcome:
    bench_with(room, digested(appended(HEAD, f"# like {TASK_CLASS} and honest-class\n")))
    return Outcome(met(attempt(room, Agent(room), cache_dir=room / "cache")))
