"""Benches whose files do something when they are read, say two things to two readers, or never end."""

import json
import os
import shutil
import sys
from pathlib import Path

from codegenie.eval.bench.loading import load_task_class
from tests.hostile.attackers.changed_benches import (
    Agent,
    all_met,
    as_python_reads,
    attempt,
    bench_with,
    listed,
    met,
    undeserved,
)
from tests.hostile.attackers.hostile_bench import answer_with, refused
from tests.hostile.engine.stage import Outcome, attack, environment, twin
from tests.support.benches import TASK_CLASS, CaseFiles
from tests.support.commands import call, eval_argv
from tests.support.stub_benches import Edit, appended, digested, in_turn, prepended, replaced, written

REGISTRATION = "registration.py"
KEYS = "breakdown_keys.py"
TAXONOMY = "failure_modes.yaml"
MEMBERS = "[member.value for member in names['BreakdownKey']]"
REGISTERED = "__import__('codegenie.eval').eval.default_registry.names()"


def _load(room: Path) -> str:
    return refused(lambda: load_task_class(TASK_CLASS, bench_root=room / "bench"))


def _wrong_list(room: Path, *edits: Edit) -> Outcome:
    bench_with(room, *edits)
    return listed(room)


def _wrong_lists(room: Path, *edits: Edit) -> Outcome:
    """List one class for each edit."""
    directory = bench_with(room)
    for number, edit in enumerate(edits):
        spelling = Path(shutil.copytree(directory, directory.with_name(f"spelling-{number}")))
        in_turn(replaced(REGISTRATION, TASK_CLASS, spelling.name), edit)(spelling)
    shutil.rmtree(directory)
    return listed(room)


@attack("import_time_code")
def import_time_code(room: Path) -> Outcome:
    sabotage = (
        "import json, pathlib\n"
        f"pathlib.Path({str(room / 'canary')!r}).touch()\n"
        'json.loads = lambda *_, **__: {"passed": True, "score": 1.0}\n'
    )
    bench_with(room, prepended(REGISTRATION, sabotage))
    ours = json.loads
    try:
        answer = _load(room)
        changed = json.loads is not ours
    finally:
        json.loads = ours
    ran = changed or (room / "canary").exists()
    return Outcome(answer, f"the registration ran; json.loads is replaced: {changed}" if ran else None)


@twin("import_time_code")
def a_registration_with_imports(room: Path) -> Outcome:
    bench_with(room, prepended(REGISTRATION, '"""Say."""\n\nfrom pathlib import Path\n'))
    return Outcome(_load(room))


def _two_readers_of_the_keys(room: Path, *edits: Edit) -> Outcome:
    """Load the keys; the harm is that Python reads others in the same file."""
    directory = bench_with(room, *edits)
    answer = _load(room)
    if answer != "accepted":
        return Outcome(answer)
    ours = sorted(load_task_class(TASK_CLASS, bench_root=room / "bench").breakdown_keys)
    theirs = sorted(as_python_reads(directory / KEYS, MEMBERS, room))
    return Outcome(answer, None if ours == theirs else f"the harness reads {ours}, Python {theirs}")


@attack("encoding_with_another_meaning")
def encoding_with_another_meaning(room: Path) -> Outcome:
    # In UTF-7 `+AAo-` is a line end: what a reviewer and we take for a comment is a line of Python.
    hidden = appended(KEYS, '    # an ordinary comment +AAo-    SURE = "llm_confidence"\n')
    cookies = (
        b"# coding: utf-7\n",
        b"#!/usr/bin/python\n# -*- coding=UTF-7 -*-\n",
        b"\r# vim: fileencoding=utf_7\n",
    )
    return all_met(_two_readers_of_the_keys(room, hidden, prepended(KEYS, cookie)) for cookie in cookies)


@twin("encoding_with_another_meaning")
def encoding_that_is_ours(room: Path) -> Outcome:
    comment = appended(KEYS, "    # an ordinary comment, with an umlaut: \u00fc\n")
    return _two_readers_of_the_keys(room, comment, prepended(KEYS, "# -*- coding: utf-8 -*-\n"))


def _rubric_after(cookie: bytes) -> Edit:
    answer = json.dumps(answer_with())
    hidden = f"# judges by the answer alone +AAo-print({answer!r}); raise SystemExit\n"
    return prepended("rubric.py", cookie + hidden.encode())


@attack("rubric_in_another_encoding")
def rubric_in_another_encoding(room: Path) -> Outcome:
    bench_with(room, _rubric_after(b"# coding: utf-7\n"))
    return undeserved(attempt(room, Agent(room, "no idea")))


@twin("rubric_in_another_encoding")
def rubric_in_our_encoding(room: Path) -> Outcome:
    bench_with(room, _rubric_after(b"# coding: utf-8\n"))
    return Outcome(met(attempt(room, Agent(room))))


@attack("enumeration_replaced_below")
def enumeration_replaced_below(room: Path) -> Outcome:
    another = 'StrEnum("BreakdownKey", {"SURE": "llm_confidence"})'
    tricks = (
        f"\n\nBreakdownKey = {another}\n",
        f"\n\nfor BreakdownKey in ({another},): pass\n",
        f"\n\ndef keys():\n    return {another}\n\n\nglobals().update(BreakdownKey=keys())\n",
        f"\n\nif (BreakdownKey := {another}): pass\n",
    )
    return all_met(_two_readers_of_the_keys(room, appended(KEYS, trick)) for trick in tricks)


@twin("enumeration_replaced_below")
def enumeration_with_a_docstring(room: Path) -> Outcome:
    head = "class BreakdownKey(StrEnum):\n"
    return _two_readers_of_the_keys(room, replaced(KEYS, head, f'{head}    """Say."""\n\n'))


def _imported_after_loading(room: Path, *edits: Edit) -> Outcome:
    """Load a bench; whoever imports one that was accepted has a directory of its name to lose."""
    directory = bench_with(room, *edits)
    answer = _load(room)
    if answer != "accepted":
        return Outcome(answer)
    (room / "home" / TASK_CLASS).mkdir(parents=True)
    as_python_reads(directory / REGISTRATION, "sorted(names)", room / "home")
    kept = (room / "home" / TASK_CLASS).exists()
    return Outcome(answer, None if kept else "the import of the registration removed a directory")


@attack("import_under_a_trusted_name")
def import_under_a_trusted_name(room: Path) -> Outcome:
    honest = "from codegenie.eval import register_task_class"
    trick = "from codegenie.eval.system.removal import remove_tree as register_task_class"
    alone = replaced(REGISTRATION, ', min_cases_for_promotion={"bronze": 1}', "")
    return _imported_after_loading(room, alone, replaced(REGISTRATION, honest, trick))


@twin("import_under_a_trusted_name")
def import_under_its_own_name(room: Path) -> Outcome:
    honest = "from codegenie.eval import register_task_class"
    return _imported_after_loading(
        room, replaced(REGISTRATION, honest, honest.replace("eval", "eval.registry"))
    )


def _names_that_an_import_takes(room: Path, *edits: Edit) -> Outcome:
    directory = bench_with(room, *edits)
    answer = _load(room)
    if answer != "accepted":
        return Outcome(answer)
    taken = as_python_reads(directory / REGISTRATION, REGISTERED, room)
    return Outcome(answer, None if taken == [TASK_CLASS] else f"{TASK_CLASS} takes the names {taken}")


@attack("registers_the_name_of_another")
def registers_the_name_of_another(room: Path) -> Outcome:
    return _names_that_an_import_takes(room, replaced(REGISTRATION, TASK_CLASS, "honest-class"))


@twin("registers_the_name_of_another")
def registers_its_own_name(room: Path) -> Outcome:
    own = f'"{TASK_CLASS}", bench_path="."'
    return _names_that_an_import_takes(room, replaced(REGISTRATION, f'"{TASK_CLASS}"', own))


@attack("source_that_breaks_the_parser")
def source_that_breaks_the_parser(room: Path) -> Outcome:
    deep = (
        "not " * 3_900 + "1\n",
        "-" * 16_000 + "1\n",
        "1" + "+1" * 7_900 + "\n",
        "a" + ".a" * 7_900 + "\n",
    )
    return _wrong_lists(room, *(written(REGISTRATION, source) for source in deep))


@twin("source_that_breaks_the_parser")
def source_of_many_lines(room: Path) -> Outcome:
    return _wrong_list(room, appended(REGISTRATION, "# a long comment\n" * 900))


@attack("integer_that_cannot_be_printed")
def integer_that_cannot_be_printed(room: Path) -> Outcome:
    return _wrong_list(room, appended(KEYS, f"\n\n0x{'f' * 16_000}\n"))


@twin("integer_that_cannot_be_printed")
def integer_of_ordinary_size(room: Path) -> Outcome:
    return _wrong_list(room, replaced(REGISTRATION, '"bronze": 1', '"bronze": 0x10'))


@attack("yaml_of_brackets")
def yaml_of_brackets(room: Path) -> Outcome:
    deep = (bracket * 40_000 for bracket in ("[", "{a: ", "- "))
    return _wrong_lists(room, *(written(TAXONOMY, source) for source in deep))


@twin("yaml_of_brackets")
def yaml_in_braces(room: Path) -> Outcome:
    return _wrong_list(room, appended(TAXONOMY, "answer.odd: {severity: warn, description: odd}\n"))


def _little_memory() -> list[str]:
    """Return how to start a command with half a gibibyte of address space."""
    limit = f"resource.setrlimit(resource.RLIMIT_AS, ({512 << 20}, {512 << 20}))"
    return [sys.executable, "-c", f"import os, resource, sys; {limit}; os.execv(sys.argv[1], sys.argv[1:])"]


@attack("yaml_alias_bomb")
def yaml_alias_bomb(room: Path) -> Outcome:
    # A gigabyte of text in 11 KB, for whoever quotes the severity that is wrong with it.
    levels = [f"&a0 {'x' * 10_000}"]
    levels += [f"&a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 6)]
    bomb = f"answer.bomb:\n  description: boom\n  severity: [{', '.join(levels)}]\n"
    bench_with(room, prepended(TAXONOMY, bomb))
    return listed(room, _little_memory())


@twin("yaml_alias_bomb")
def yaml_with_an_ampersand(room: Path) -> Outcome:
    bench_with(room, prepended(TAXONOMY, "answer.odd:\n  severity: warn\n  description: a & b, 2 * 3\n"))
    return listed(room, _little_memory())


@attack("toml_of_dots")
def toml_of_dots(room: Path) -> Outcome:
    # Minutes for a tomllib that is quadratic in the parts of a key (cpython #149231).
    dots = ".".join(["a"] * 64_000)
    bench_with(room, digested(appended("cases/one/case.toml", f"{dots} = 1\n")))
    return Outcome(met(attempt(room, Agent(room))))


@twin("toml_of_dots")
def toml_with_dots_in_a_comment(room: Path) -> Outcome:
    bench_with(room, digested(appended("cases/one/case.toml", '# see a.b.c.d.e.f\n"family" = "one"\n')))
    return Outcome(met(attempt(room, Agent(room))))


def _one_family(room: Path, padding: int) -> Outcome:
    """Let three cases say that they are one family; the harm is that they count as three units."""
    said = 'family = "one"\n'
    head = said + "#" * (padding - len(said) - 1) + "\n"
    cases = ("one", "three", "two")
    edits = [prepended(f"cases/{case}/case.toml", head) for case in cases]
    bench_with(room, digested(*edits), cases=cases)
    result = attempt(room, Agent(room))
    units = 1 if isinstance(result, str) else result.units
    return Outcome(met(result), f"one family counts as {units} units" if units > 1 else None)


@attack("toml_with_another_end")
def toml_with_another_end(room: Path) -> Outcome:
    return _one_family(room, 1 << 20)


@twin("toml_with_another_end")
def toml_with_a_long_comment(room: Path) -> Outcome:
    return _one_family(room, 15_000)


@attack("deadline_of_a_day")
def deadline_of_a_day(room: Path) -> Outcome:
    values = ("86_400", "301", "inf", "nan", "0", "-1", "true", "1e308", '"60"', "[60]", "2026-11-15")
    outcomes = []
    for value in values:
        line = f"rubric_wall_clock_seconds = {value}\n"
        bench_with(
            room, digested(appended("cases/one/case.toml", line)), rubric="import time\ntime.sleep(120)\n"
        )
        # Without the defense this is ended from outside, and what it leaves behind is to lie in the room.
        with environment(TMPDIR=str(room)):
            outcomes.append(Outcome(met(attempt(room, Agent(room)))))
    return all_met(outcomes)


@twin("deadline_of_a_day")
def deadline_of_five_minutes(room: Path) -> Outcome:
    bench_with(room, cases=[CaseFiles("one", fields={"rubric_wall_clock_seconds": 300})])
    return Outcome(met(attempt(room, Agent(room))))


@attack("settings_in_a_pipe")
def settings_in_a_pipe(room: Path) -> Outcome:
    bench_with(room)
    os.mkfifo(room / "pyproject.toml")
    return Outcome(f"exit {call(eval_argv('list'), room).returncode}")


@twin("settings_in_a_pipe")
def settings_in_a_file(room: Path) -> Outcome:
    bench_with(room)
    (room / "pyproject.toml").write_text('[tool.codegenie.eval]\nbench_root = "bench"\n', encoding="utf-8")
    return Outcome(f"exit {call(eval_argv('list'), room).returncode}")
