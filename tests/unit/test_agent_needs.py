"""What a command needs in the box is found by looking at files, and nothing is run."""

import os
import shutil
import sys
import venv
from pathlib import Path

import pytest

from codegenie.eval.errors import SutSpecInvalid
from codegenie.eval.suts.agent_spec.needs import (
    Needs,
    Places,
    find_needs,
    missing_in_the_box,
    readable_paths,
    refuse_secret_paths,
    unseen_arguments,
)
from codegenie.eval.suts.agent_spec.reading import decoded_spec

SH = os.path.realpath("/bin/sh")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Give a home directory, beside which nothing is."""
    path = Path(os.path.realpath(tmp_path)) / "home"
    (path / "work").mkdir(parents=True)
    return path


def program(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def needs_of(home: Path, name: str, *path: Path) -> Needs:
    return find_needs(name, Places((str(home / "work"),), ":".join(map(str, path)), str(home)))


def test_a_script_is_shown_alone_and_its_interpreter_comes_with_the_system(home: Path) -> None:
    script = program(home / "work" / "agent.sh")

    found = needs_of(home, "./agent.sh")

    assert (found.program, found.executed, found.shown) == (str(script), str(script), (str(script),))


def test_the_working_directory_is_looked_at_before_the_search_path(home: Path) -> None:
    there = program(home / "bin" / "agent")

    assert needs_of(home, "agent", home / "bin").executed == str(there)
    here = program(home / "work" / "agent")
    assert needs_of(home, "agent", home / "bin").executed == str(here)


def test_a_program_of_the_system_needs_nothing(home: Path) -> None:
    found = needs_of(home, "/bin/sh")

    assert (found.executed, found.shown) == (SH, ())
    assert found.program == os.path.join(os.path.realpath("/bin"), "sh")


def test_a_link_in_a_home_is_followed_and_its_target_is_executed(home: Path) -> None:
    real = program(home / "share" / "agent" / "1.0")
    (home / "bin").mkdir()
    (home / "bin" / "agent").symlink_to(real)

    found = needs_of(home, "agent", home / "bin")

    assert (found.program, found.shown) == (str(real), (str(real),))


def test_the_script_of_a_virtual_environment_needs_the_environment_and_its_python(home: Path) -> None:
    base = home / "pythons" / "3.11"
    shutil.copy(os.path.realpath(sys.executable), program(base / "bin" / "python3"))
    environment = home / "venv"
    (environment / "bin").mkdir(parents=True)
    (environment / "pyvenv.cfg").write_text(f"home = {base}/bin\nversion = 3.11\n", encoding="utf-8")
    (environment / "bin" / "python").symlink_to(base / "bin" / "python3")
    script = program(environment / "bin" / "agent", f"#!{environment}/bin/python\n")

    found = needs_of(home, "agent", environment / "bin")

    assert found.program == str(script)
    assert found.shown == (str(base), str(environment))


def test_the_python_of_a_virtual_environment_is_started_by_its_own_name(home: Path) -> None:
    venv.create(home / "venv", symlinks=True, with_pip=False)

    found = needs_of(home, str(home / "venv" / "bin" / "python"))

    assert found.program == str(home / "venv" / "bin" / "python")
    assert found.executed == os.path.realpath(sys.executable)
    assert str(home / "venv") in found.shown


def test_a_script_of_node_needs_the_directory_above_and_the_node_of_the_search_path(home: Path) -> None:
    root = home / "node" / "v22"
    shutil.copy(SH, program(root / "bin" / "node"))
    script = program(
        root / "lib" / "node_modules" / "@org" / "cli" / "cli.js", "#!/usr/bin/env -S node --flag\n"
    )
    (root / "bin" / "agent").symlink_to(script)

    found = needs_of(home, "agent", root / "bin")

    assert found.program == str(script)
    assert found.shown == (str(root / "bin" / "node"), str(root / "lib"))


def test_a_home_directory_is_never_shown_as_a_whole(home: Path) -> None:
    (home / "pyvenv.cfg").write_text(f"home = {home}/bin\n", encoding="utf-8")
    script = program(home / "node_modules" / "cli" / "cli.js")
    link = home / "bin" / "agent"
    link.parent.mkdir()
    link.symlink_to(script)

    assert needs_of(home, "agent", home / "bin").shown == (str(home / "node_modules"),)


def test_an_environment_whose_python_lies_in_the_home_itself_shows_that_directory_alone(home: Path) -> None:
    environment = home / "venv"
    script = program(environment / "bin" / "agent")
    (home / "bin").mkdir()
    (environment / "pyvenv.cfg").write_text(f"home = {home}/bin\n", encoding="utf-8")

    assert needs_of(home, str(script)).shown == (str(home / "bin"), str(environment))


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("claude", "agent not found: claude", "npm install -g"),
        ("nothing-of-this-name", "agent not found: nothing-of-this-name", "install it"),
        ("./plain.txt", "may not be executed", "chmod"),
        ("./directory", "is not a regular file", "chmod"),
        ("./pipe", "is not a regular file", "chmod"),
        ("./no-first-line", "neither a program nor a script", "#!/bin/sh"),
        ("./empty", "neither a program nor a script", ""),
        ("./bare-mark", "neither a program nor a script", ""),
        ("./lost", "the interpreter of ./lost is not there: /no/such/python", "install"),
        ("./lost-env", "the interpreter of ./lost-env is not there: no-such-node", "install"),
        ("a\0b", "agent not found", ""),
        ("x" * 5000, "agent not found", ""),
    ],
)
def test_a_command_that_cannot_be_started_is_refused_before_the_first_case(
    home: Path, name: str, message: str, hint: str
) -> None:
    work = home / "work"
    (work / "plain.txt").write_text("#!/bin/sh\n", encoding="utf-8")
    program(work / "no-first-line", "echo hello\n")
    program(work / "empty", "")
    program(work / "bare-mark", "#!\n")
    program(work / "lost", "#!/no/such/python\n")
    program(work / "lost-env", "#!/usr/bin/env no-such-node\n")
    (work / "directory").mkdir()
    os.mkfifo(work / "pipe")

    with pytest.raises(SutSpecInvalid) as caught:
        needs_of(home, name)

    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


def test_interpreters_that_name_each_other_have_an_end(home: Path) -> None:
    work = home / "work"
    program(work / "a", f"#!{work}/b\n")
    program(work / "b", f"#!{work}/a\n")

    assert needs_of(home, "./a").shown == (str(work / "a"), str(work / "b"))


def test_a_file_that_the_spec_brings_along_is_started_in_the_agent_directory(home: Path) -> None:
    script = program(home / "work" / "lib" / "run.sh")
    places = Places((str(home / "work"),), "", str(home))

    found = find_needs("/agent/lib/run.sh", places, ["lib/"])

    assert (found.program, found.executed, found.shown) == ("/agent/lib/run.sh", str(script), ())
    for name in ("/agent/other.sh", "/agent/lib/../other.sh", "/agent/../etc/passwd"):
        with pytest.raises(SutSpecInvalid, match="is not one of files"):
            find_needs(name, places, ["lib/"])


# Readable paths, secrets and hints.


def readable(home: Path, path: str) -> tuple[str, ...]:
    text = f'schema = 1\nname = "a"\ncommand = ["a"]\nreadable = ["{path}"]\n'
    return readable_paths(decoded_spec(text.encode(), "sut.toml"), str(home))


def test_a_readable_path_is_expanded_and_real(home: Path) -> None:
    (home / "link").symlink_to("work")

    assert readable(home, "~/link") == (str(home / "work"),)


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("~/missing", "is not there"),
        ("~/up", "shows more than an agent needs"),
        ("/etc", "shows more than an agent needs"),
        ("/proc/self", "shows more than an agent needs"),
        ("/dev/null", "shows more than an agent needs"),
        ("/sys", "shows more than an agent needs"),
        ("~/pipe", "neither a directory nor a regular file"),
    ],
)
def test_a_readable_path_that_shows_too_much_or_nothing_is_refused(
    home: Path, path: str, problem: str
) -> None:
    (home / "up").symlink_to("..")
    os.mkfifo(home / "pipe")

    with pytest.raises(SutSpecInvalid, match=problem):
        readable(home, path)


def test_a_shown_path_in_a_secret_one_is_refused_and_one_around_it_is_not() -> None:
    refuse_secret_paths(["/data/tools", "/data"], ["/data/bench"])
    refuse_secret_paths(["/data/bench-tools"], ["/data/bench"])
    for path in ("/data/bench", "/data/bench/cases/a"):
        with pytest.raises(SutSpecInvalid, match="which an agent does not see"):
            refuse_secret_paths([path], ["/data/bench"])


def test_an_argument_that_names_a_file_outside_the_box_is_noticed(home: Path) -> None:
    work = home / "work"
    for name in ("agent.py", "shown.py"):
        (work / name).touch()

    found = unseen_arguments(
        ["python3", "agent.py", "shown.py", "--flag", "a\0", "/bin/sh"], str(work), [str(work / "shown.py")]
    )

    assert found == ("agent.py",)


def test_a_start_that_fails_for_a_path_names_what_to_add() -> None:
    refusal = missing_in_the_box("/home/u/.nvm/v22/bin/node", "/home/u")

    assert refusal.message == "the agent is in /home/u/.nvm/v22/bin, which the box does not show"
    assert refusal.hint == "add /home/u/.nvm/v22/bin to readable"
    assert "of its own" in (missing_in_the_box("/home/u/agent", "/home/u").hint or "")
