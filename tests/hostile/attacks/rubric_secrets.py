"""Rubrics that have read a secret of the harness and write it wherever somebody might keep or show it.

That a rubric can read one is not prevented in the `subprocess` class, so here each simply knows it. The
witness is the log with its artefacts, byte by byte, and a terminal.
"""

import json
import os
import pty
import subprocess
from pathlib import Path

from tests.hostile.attackers.hostile_bench import (
    HONEST,
    HOSTILE,
    judged,
    rubric_that,
    rubric_that_prints,
    run_hostile,
    written,
)
from tests.hostile.engine.stage import Outcome, attack, environment, files_that_hold, twin
from tests.support.benches import write_bench
from tests.support.commands import environment as with_sources
from tests.support.commands import run_argv, write_agent

SECRET = "sk-live-4f7a91c03be2d586"
PHRASE = "correct horse battery staple"
QUOTED = 'p"ss\\w\u00f6rd-\u4e2d\u6587-9921'


def leaked(room: Path, rubric: str, secret: str, *marks: str) -> Outcome:
    """Run a rubric beside an environment that holds the secret; look for it in all that the run left."""
    with environment(SERVICE_TOKEN=secret):
        outcome = judged(run_hostile(room, rubric), lambda _report: None)
    found = [mark for mark in marks if files_that_hold(mark.encode(), room / "runs")]
    harm = f"{len(found)} of {len(marks)} spellings are on the disk" if found else None
    return Outcome(outcome.met, harm, outcome.sibling)


def _says_it_everywhere(secret: str) -> str:
    modes = [{"code": "answer.noted", "detail": f"the key is {secret}"}, {"code": secret}]
    answer = written(failure_modes=modes, breakdown={f"key.{secret}": 1.0})
    return rubric_that_prints(answer) + f"sys.stderr.write('debug: ' + {secret!r})\n"


@attack("secret_in_every_text")
def secret_in_every_text(room: Path) -> Outcome:
    return leaked(room, _says_it_everywhere(SECRET), SECRET, SECRET)


@twin("secret_in_every_text")
def word_in_every_text(room: Path) -> Outcome:
    outcome = leaked(room, _says_it_everywhere("ordinary"), SECRET, SECRET)
    kept = files_that_hold(b"the key is ordinary", room / "runs")
    return Outcome(outcome.met, outcome.harm if kept else "an ordinary word is gone", outcome.sibling)


def _exits_with(text: str) -> str:
    return rubric_that(f"sys.stderr.write({text!r})\nsys.exit(3)\n")


@attack("secret_over_several_lines")
def secret_over_several_lines(room: Path) -> Outcome:
    modes = [{"code": "answer.noted", "detail": PHRASE.replace(" ", "\n\t")}]
    return leaked(room, rubric_that_prints(written(failure_modes=modes)), PHRASE, PHRASE)


@twin("secret_over_several_lines")
def words_over_several_lines(room: Path) -> Outcome:
    modes = [{"code": "answer.noted", "detail": "correct\nhorse\tbattery stables"}]
    outcome = leaked(room, rubric_that_prints(written(failure_modes=modes)), PHRASE, PHRASE)
    kept = files_that_hold(b"correct horse battery stables", room / "runs")
    return Outcome(outcome.met, outcome.harm if kept else "ordinary words are gone", outcome.sibling)


@attack("secret_across_the_cut")
def secret_across_the_cut(room: Path) -> Outcome:
    modes = [{"code": "answer.noted", "detail": "x" * 180 + SECRET + " tail"}]
    return leaked(room, rubric_that_prints(written(failure_modes=modes)), SECRET, SECRET[:16])


@twin("secret_across_the_cut")
def word_across_the_cut(room: Path) -> Outcome:
    modes = [{"code": "answer.noted", "detail": "x" * 180 + "sk-like-but-no-secret-at-all"}]
    outcome = leaked(room, rubric_that_prints(written(failure_modes=modes)), SECRET, SECRET)
    kept = files_that_hold(b"sk-like-but-no-secr", room / "runs")
    return Outcome(outcome.met, outcome.harm if kept else "an ordinary word is gone", outcome.sibling)


@attack("secret_in_json_escapes")
def secret_in_json_escapes(room: Path) -> Outcome:
    escaped = [json.dumps(QUOTED)[1:-1], json.dumps(QUOTED, ensure_ascii=False)[1:-1]]
    return leaked(room, _exits_with("\n".join(escaped)), QUOTED, QUOTED, *escaped)


@twin("secret_in_json_escapes")
def text_in_json_escapes(room: Path) -> Outcome:
    modes = [{"code": "answer.noted", "detail": 'a "quoted" w\u00f6rd'}]
    outcome = leaked(room, rubric_that_prints(written(failure_modes=modes)), QUOTED, QUOTED)
    kept = files_that_hold(b'a \\"quoted\\" w', room / "runs")
    return Outcome(outcome.met, outcome.harm if kept else "an ordinary word is gone", outcome.sibling)


def _floods_behind(secret: str, kept: int) -> str:
    """Write so much behind a secret that only its last characters are within what is kept of stderr."""
    return _exits_with(secret + "y" * (65_536 - kept))


@attack("secret_where_stderr_is_cut")
def secret_where_stderr_is_cut(room: Path) -> Outcome:
    return leaked(room, _floods_behind(SECRET, 16), SECRET, SECRET[-16:])


@twin("secret_where_stderr_is_cut")
def noise_where_stderr_is_cut(room: Path) -> Outcome:
    perfect = rubric_that_prints(written()) + "sys.stderr.write('y' * 70_000)\n"
    outcome = leaked(room, perfect, SECRET, SECRET[-16:])
    # Not all of it: where it is cut, as much as the longest secret of the environment goes.
    kept = files_that_hold(b"y" * 30_000, room / "runs")
    return Outcome(outcome.met, outcome.harm if kept else "the noise is gone", outcome.sibling)


def _on_a_terminal(room: Path, rubric: str) -> tuple[int, bytes]:
    """Run the command on a terminal of its own; return its exit code and every byte that it showed."""
    write_bench(room / "bench", rubric, (HONEST, HOSTILE))
    write_agent(room)
    terminal, theirs = pty.openpty()
    argv = run_argv("--bench-root", "bench", "--out", "runs", "--cache", "cache", "-v")
    with subprocess.Popen(
        argv, cwd=room, env=with_sources(), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as process:
        os.close(theirs)
        shown = b""
        while part := _read(terminal):
            shown += part
    os.close(terminal)
    return process.returncode, shown


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # how a terminal says that nobody writes to it any more
        return b""


@attack("stderr_on_the_terminal")
def stderr_on_the_terminal(room: Path) -> Outcome:
    title = rubric_that(
        "sys.stderr.write('\\x1b]0;owned\\x07\\x1b[2Jall 500 cases passed\\n')\nsys.exit(3)\n"
    )
    code, shown = _on_a_terminal(room, title)
    steered = b"\x1b]0;owned" in shown
    return Outcome(f"exit {code}", "the rubric wrote to the terminal" if steered else None)


@twin("stderr_on_the_terminal")
def stderr_without_escapes(room: Path) -> Outcome:
    code, shown = _on_a_terminal(room, _exits_with("no luck\n"))
    return Outcome(f"exit {code}", None if b"no luck" in shown else "the reason is not shown")
