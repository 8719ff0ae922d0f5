"""Wrong commands, flags, settings and variables."""

import os
import shutil
from pathlib import Path

from tests.cli.refusals import RUN, Refusal, wrong_flags
from tests.support.commands import without_a_box
from tests.support.stub_benches import NAME, Edit, in_turn, link, removed, sparse

SETTINGS = "SettingsInvalid"
NOT_FOUND = "TaskClassNotFound"
NO_SUT = "SutSpecInvalid"


def _run_with(sentence: str, flags: str | tuple[str, ...], error: str, says: str) -> Refusal:
    words = tuple(flags.split()) if isinstance(flags, str) else flags
    return wrong_flags(sentence, (RUN[0], *without_a_box(*RUN[1:], *words)), error, says)


def _class(sentence: str, name: str, says: str) -> Refusal:
    return wrong_flags(f"a task class {sentence}", ("eval", "digest", name), NOT_FOUND, says)


def _project(content: str | bytes) -> Edit:
    """Write the pyproject.toml of the working directory."""
    raw = content.encode() if isinstance(content, str) else content
    return lambda bench: (bench.parents[1] / "pyproject.toml").write_bytes(raw)


def _setting(sentence: str, line: str, says: str) -> Refusal:
    edit = _project(f"[tool.codegenie.eval]\n{line}\n")
    return Refusal(f"a pyproject.toml {sentence}", edit, SETTINGS, says, argv=RUN[:-2])


def _file(sentence: str, edit: Edit, says: str) -> Refusal:
    return Refusal(f"a pyproject.toml {sentence}", edit, SETTINGS, says)


def _variable(name: str, value: str, says: str, error: str = SETTINGS) -> Refusal:
    variable = f"CODEGENIE_EVAL_{name}"
    return Refusal(
        f"{variable}={value}",
        lambda _bench: None,
        error,
        says,
        argv=RUN[:-2],
        environment=((variable, value),),
    )


def _second_root(bench: Path) -> None:
    shutil.copytree(bench, bench.parents[1] / "more" / NAME)


COMMANDS = [
    wrong_flags("a command that is not there", "eval frobnicate", SETTINGS, "no command 'frobnicate'"),
    wrong_flags("a command with a typing error", "eval rnu", SETTINGS, "did you mean 'run'?"),
    wrong_flags("a command with an escape", ("eval", "\x1b[2J"), SETTINGS, "there is no command"),
    wrong_flags("a first word that is not there", "frobnicate", SETTINGS, "No such command 'frobnicate'"),
    wrong_flags("an option that is not there", "eval list --bogus", SETTINGS, "--bogus"),
    wrong_flags("a flag with a value", f"eval digest {NAME} --write=yes", SETTINGS, "--write"),
    wrong_flags("an argument too many", "eval list more", SETTINGS, "more"),
    wrong_flags("an argument too few", "eval run --sut null", SETTINGS, "TASK_CLASS"),
    wrong_flags("a run without a system under test", f"eval run {NAME}", SETTINGS, "--sut"),
]

VALUES = [
    *(
        _run_with(f"{flag} {value}", f"{flag} {value}", SETTINGS, flag)
        for flag, values in {
            "--trials": "0 -1 1001 1.5 many",
            "--concurrency": "0 -1 257 1.5 many",
            "--timeout": "0 -1 nan inf soon",
            "--max-cost-usd": "-0.01 nan inf free",
            "--isolation": "docker none SUBPROCESS",
        }.items()
        for value in values.split()
    ),
    _run_with("an empty --out", ("--out", ""), SETTINGS, "'--out': is empty"),
    _run_with("a blank --cache", ("--cache", " "), SETTINGS, "'--cache': is empty"),
    _run_with("an empty --tiers", ("--tiers", ""), SETTINGS, "'--tiers': is empty"),
    _run_with("an empty --sut-version", ("--sut-version", ""), SETTINGS, "'--sut-version': is empty"),
    _run_with("an empty --timeout", ("--timeout", ""), SETTINGS, "--timeout"),
    _run_with("a SUT that is not there", "--sut bogus", NO_SUT, "'bogus' is not a system under test"),
    _run_with("a SUT without a name", ("--sut", ""), NO_SUT, "'' is not a system under test"),
    _run_with("a SUT with an escape", ("--sut", "\x1b[2J"), NO_SUT, "is not a system under test"),
    _run_with("a Python SUT without anything", "--sut python:", NO_SUT, "'python:'"),
    _run_with("a Python SUT without a function", "--sut python:json", NO_SUT, "not python:module:attr"),
    _run_with("a Python SUT that is a path", "--sut python:../x:y", NO_SUT, "not python:module:attr"),
    _run_with("a Python SUT with code", ("--sut", "python:a;b:c"), NO_SUT, "not python:module:attr"),
    _run_with(
        "a module that is not there", "--sut python:no_such_module:f", NO_SUT, "no module 'no_such_module'"
    ),
    _run_with(
        "a part of a module that is not there", "--sut python:json.gone:f", NO_SUT, "no module 'json.gone'"
    ),
    _run_with("a function that is not there", "--sut python:json:no_such_function", NO_SUT, "cannot import"),
    _run_with(
        "a Python for another agent", "--sut null --sut-python python3", NO_SUT, "takes no --sut-python"
    ),
    _run_with("an empty --sut-python", ("--sut-python", ""), SETTINGS, "'--sut-python': is empty"),
    _run_with(
        "a Python that is not there",
        "--sut python:json:loads --sut-python ./no-such-python",
        NO_SUT,
        "no-such-python: there is no such program",
    ),
    _run_with(
        "a Python with an escape",
        ("--sut", "python:json:loads", "--sut-python", "\x1b[2J"),
        NO_SUT,
        "cannot be shown",
    ),
    _run_with(
        "a model for a function", "--sut python:json:loads --sut-model m", NO_SUT, "takes no --sut-model"
    ),
    _run_with(
        "a broker for a function",
        "--sut python:json:loads --sut-network broker --sut-isolation auto",
        NO_SUT,
        "the agent has no [broker]",
    ),
    _run_with(
        "a network for a plain process",
        "--sut python:json:loads --sut-network none",
        NO_SUT,
        "reaches all that its user reaches",
    ),
    _run_with("a version of the harness's own SUT", "--sut null --sut-version 2", NO_SUT, "--sut-version"),
    _run_with("a variable for the harness's own SUT", "--sut oracle --sut-env HOME", NO_SUT, "--sut-env"),
    _run_with(
        "a variable that is not there", "--sut python:json:loads --sut-env NO_SUCH_ONE", NO_SUT, "NO_SUCH_ONE"
    ),
    _run_with("an empty --record", ("--record", ""), SETTINGS, "'--record': is empty"),
    _run_with("a replay of nothing", "--sut replay:", NO_SUT, "'replay:' is not a system under test"),
    _run_with("a replay of a directory that is not there", "--sut replay:gone", NO_SUT, "cannot be opened"),
    _run_with("a replay of a bench", "--sut replay:bench", NO_SUT, "there is no recording"),
    _run_with("a version of a replay", "--sut replay:gone --sut-version 2", NO_SUT, "--sut-version"),
    _run_with("no case of this name", "--cases gone*", "NoCaseMatches", "matches 'gone*'"),
    _run_with("an empty glob", ("--cases", ""), "NoCaseMatches", "matches ''"),
    _run_with(
        "one of two names with a typing error",
        "--cases adds_up --cases of_by_one",
        "NoCaseMatches",
        "'of_by_one'",
    ),
]

PLACES = [
    _class("that is not there", "gone", "there is no task class 'gone'"),
    _class("that is a path", "../etc", "'../etc' is not the name"),
    _class("that is an absolute path", "/etc", "'/etc' is not the name"),
    _class("without a name", "", "'' is not the name"),
    _class("with an escape in its name", "\x1b[2J", r"'\x1b[2J' is not the name"),
    _class("with a name of 5,000 characters", "a" * 5_000, "is not the name"),
    wrong_flags("a bench root that is not there", "eval list --bench-root gone", NOT_FOUND, "no bench root"),
    wrong_flags("a bench root that is empty", ("eval", "list", "--bench-root", ""), SETTINGS, "is empty"),
    wrong_flags(
        "a bench root of 6,000 characters",
        f"eval list --bench-root {'a/' * 3000}",
        NOT_FOUND,
        "no bench root",
    ),
    wrong_flags(
        "a bench root that is a file", f"eval list --bench-root bench/{NAME}/README.md", NOT_FOUND, "no bench"
    ),
    wrong_flags(
        "a bench root with a NUL", ("eval", "list", "--bench-root", "a\0b"), SETTINGS, "holds a zero byte"
    ),
    wrong_flags(
        "a bench root with half a character",
        ("eval", "list", "--bench-root", "\ud800"),
        SETTINGS,
        "is not UTF-8",
    ),
    wrong_flags(
        "a class where there is no bench root",
        f"eval digest {NAME} --bench-root gone",
        NOT_FOUND,
        "no task class",
    ),
    Refusal(
        "a class in two bench roots",
        _second_root,
        "TaskClassAlreadyRegistered",
        "exists in 2 bench roots",
        argv=(*RUN, "--bench-root", "more"),
    ),
    Refusal(
        "a class in two bench roots, the other way round",
        _second_root,
        "TaskClassAlreadyRegistered",
        "exists in 2 bench roots",
        argv=(*RUN[:-1], "more", "--bench-root", "bench"),
    ),
    Refusal(
        "digests to be compared that are a link",
        in_turn(removed("cases/digests.yaml"), link("cases/digests.yaml", "/etc/passwd")),
        "BenchInvalid",
        "is not a regular file",
        argv=("eval", "digest", NAME, "--write"),
    ),
]

PROJECT_FILES = [
    _setting("with a setting that is not there", "thresholds = 1", "no setting 'thresholds'"),
    _setting("with an escape in a setting", r'"\u001b[2J" = 1', "no setting"),
    _file(
        "of short keys below a deep header",
        _project(
            "[tool.codegenie.eval]\n["
            + ".".join("a" * 500)
            + "]\n"
            + "".join(f"b{n}.c = 1\n" for n in range(3_000))
        ),
        "tables that are too deep",
    ),
    _setting("with an empty directory", 'out = ""', "'--out': is empty"),
    _setting("with a quoted number", 'concurrency = "2"', "concurrency has a value of the wrong kind"),
    _setting("with true for a number", "concurrency = true", "concurrency has a value of the wrong kind"),
    _setting("with a number for a root", "bench_root = 5", "bench_root has a value of the wrong kind"),
    _setting("with numbers for roots", "bench_root = [1]", "bench_root has a value of the wrong kind"),
    _setting("without a root in the list", "bench_root = []", "bench_root has a value of the wrong kind"),
    _setting("with a concurrency of 0", "concurrency = 0", "--concurrency"),
    _setting("with an isolation of its own", 'isolation = "docker"', "--isolation"),
    _setting("with a timeout of nan", "timeout = nan", "--timeout"),
    _setting("with a cost below zero", "max_cost_usd = -1", "--max-cost-usd"),
    _setting("that is no TOML", "concurrency =", "is not TOML"),
    _file("whose table is a number", _project("[tool.codegenie]\neval = 1\n"), "'eval' of"),
    _file("whose table above is a number", _project("[tool]\ncodegenie = 1\n"), "'codegenie' of"),
    _file("that is not UTF-8", _project(b"# codegenie \xff"), "is not TOML"),
    _file("nested 10,000 deep", _project("codegenie = " + "[" * 10_000), "is not TOML"),
    _file("with a dotted key of 100 KB", _project("codegenie" + ".a" * 50_000), "more than 512 dots"),
    _file(
        "of a tebibyte",
        lambda bench: sparse(1 << 40)(bench.parents[1] / "pyproject.toml"),
        "not a regular file",
    ),
    _file(
        "that is a link to itself",
        lambda bench: (bench.parents[1] / "pyproject.toml").symlink_to("pyproject.toml"),
        "cannot read pyproject.toml",
    ),
    _file(
        "that is a pipe", lambda bench: os.mkfifo(bench.parents[1] / "pyproject.toml"), "not a regular file"
    ),
    _file(
        "that is a directory",
        lambda bench: (bench.parents[1] / "pyproject.toml").mkdir(),
        "not a regular file",
    ),
]

VARIABLES = [
    _variable("CONCURRENCY", "many", "--concurrency"),
    _variable("CONCURRENCY", "0", "--concurrency"),
    _variable("TIMEOUT", "soon", "--timeout"),
    _variable("TIMEOUT", "-1", "--timeout"),
    _variable("MAX_COST_USD", "free", "--max-cost-usd"),
    _variable("MAX_COST_USD", "nan", "--max-cost-usd"),
    _variable("ISOLATION", "docker", "--isolation"),
    _variable("BENCH_ROOT", "nowhere", "no task class", NOT_FOUND),
    _variable("BENCH_ROOT", "bench stub", "no task class", NOT_FOUND),
]
