"""Rubrics that write where they should not: files, logs, stores, modes, dates, and code for later."""

import os
import secrets
import subprocess
import sys

from tests.hostile.attackers.hostile_bench import what_it_met
from tests.hostile.confined.reading import private
from tests.hostile.engine.ground import Ground, Plan, confined_attack
from tests.hostile.engine.stage import Outcome, files_that_hold
from tests.hostile.engine.tools import every_way, first_that_works, patiently, system_call


def makes_something_outside(plan: Plan) -> str:
    import os
    import socket

    place = plan["place"]
    open("own", "w", encoding="utf-8").close()
    open("own-too", "w", encoding="utf-8").close()
    every_way(
        [
            lambda: os.close(os.open(f"{place}/file", os.O_CREAT | os.O_WRONLY)),
            lambda: os.mkdir(f"{place}/directory"),
            lambda: os.symlink("/", f"{place}/symlink"),
            lambda: os.mkfifo(f"{place}/pipe"),
            lambda: os.link("own", f"{place}/link"),
            lambda: os.rename("own-too", f"{place}/renamed"),
            lambda: socket.socket(socket.AF_UNIX).bind(f"{place}/socket"),
            lambda: socket.socketpair()[0].bind(f"{place}/socket-of-a-pair"),
        ]
    )
    return "tried"


@confined_attack("something_made_outside")
def something_made_outside(ground: Ground) -> Outcome:
    (ground.room / "home").mkdir()
    # As wide open as a shared temporary directory: nothing but our own wall is in the way.
    (ground.room / "home").chmod(0o777)
    played = ground.play(makes_something_outside, {"place": str(ground.room / "home")})
    made = sorted(os.listdir(ground.room / "home"))
    return played.outcome(f"it made {', '.join(made)}" if made else None)


def appends_to_a_file(plan: Plan) -> str:
    with open(plan["file"], "a", encoding="utf-8") as file:
        file.write("PATH=/evil\n")
    return "appended"


@confined_attack("variables_of_the_next_step")
def variables_of_the_next_step(ground: Ground) -> Outcome:
    file = private(ground.room / "runner" / "set_env", "CI=true\n")
    file.chmod(0o666)
    played = ground.play(appends_to_a_file, {"file": str(file)})
    changed = file.read_text(encoding="utf-8") != "CI=true\n"
    return played.outcome("the next step of the pipeline runs with its variables" if changed else None)


def empties_a_file(plan: Plan) -> str:
    import os

    def by_opening() -> None:
        os.close(os.open(plan["file"], os.O_WRONLY | os.O_TRUNC))

    first_that_works([lambda: os.truncate(plan["file"], 0), by_opening])
    return "emptied"


@confined_attack("file_outside_emptied")
def file_outside_emptied(ground: Ground) -> Outcome:
    file = private(ground.room / "home" / "thesis", "all of it")
    played = ground.play(empties_a_file, {"file": str(file)})
    return played.outcome("a file of the user is empty" if file.stat().st_size == 0 else None)


def removes_or_replaces_a_file(plan: Plan) -> str:
    import os

    with open("forged", "w", encoding="utf-8") as file:
        file.write("forged")
    first_that_works([lambda: os.replace("forged", plan["file"]), lambda: os.unlink(plan["file"])])
    return "gone"


@confined_attack("file_outside_replaced")
def file_outside_replaced(ground: Ground) -> Outcome:
    file = private(ground.room / "home" / "thesis", "all of it")
    played = ground.play(removes_or_replaces_a_file, {"file": str(file)})
    gone = not file.exists() or file.read_text(encoding="utf-8") != "all of it"
    return played.outcome("a file of the user is gone" if gone else None)


def opens_a_file_to_everybody(plan: Plan) -> str:
    import os

    def by_a_descriptor_that_opens_nothing() -> None:
        os.chmod(f"/proc/self/fd/{os.open(plan['file'], os.O_PATH)}", 0o644)

    path = plan["file"].encode() + b"\0"
    first_that_works(
        [
            lambda: os.chmod(plan["file"], 0o644),
            lambda: system_call("fchmodat2", -100, path, 0o644, 0),
            by_a_descriptor_that_opens_nothing,
        ]
    )
    return "opened"


@confined_attack("mode_of_a_file_outside")
def mode_of_a_file_outside(ground: Ground) -> Outcome:
    file = private(ground.room / "home" / "key", "secret")
    played = ground.play(opens_a_file_to_everybody, {"file": str(file)})
    opened = file.stat().st_mode & 0o777 != 0o600
    return played.outcome("everybody may read a private file" if opened else None)


def dates_a_file_back(plan: Plan) -> str:
    import os

    os.utime(plan["file"], (1, 1))
    return "dated"


@confined_attack("date_of_a_file_outside")
def date_of_a_file_outside(ground: Ground) -> Outcome:
    file = private(ground.room / "home" / "build.stamp", "")
    played = ground.play(dates_a_file_back, {"file": str(file)})
    return played.outcome("a file of the user is older than it is" if file.stat().st_mtime == 1 else None)


def marks_every_file_below(plan: Plan) -> str:
    import os

    marked = 0
    for place, _, files in os.walk(plan["place"]):
        for name in files:
            with open(f"{place}/{name}", "ab") as file:
                # Not written out: the rubric's own text is kept beside the log.
                file.write(bytes([0x23]) * 3 + bytes.fromhex(plan["mark"]))
                marked += 1
    return f"marked {marked}"


@confined_attack("log_edited")
def log_edited(ground: Ground) -> Outcome:
    mark = secrets.token_bytes(12)
    met, sibling = "no report", None
    plan = {"place": str(ground.room / "runs"), "mark": mark.hex()}
    try:
        played = ground.play(marks_every_file_below, plan)
    except RuntimeError:
        raise
    except Exception as crash:  # an edited log may end the run: harm enough
        if ground.isolation != "subprocess":
            raise
        return Outcome(met, f"the run ended with {type(crash).__name__}")
    met = what_it_met(played.score())
    sibling = played.outcome(None).sibling
    found = files_that_hold(b"###" + mark, ground.room / "runs")
    return Outcome(met, f"it wrote into {len(found)} files of the log" if found else None, sibling)


@confined_attack("store_poisoned")
def store_poisoned(ground: Ground) -> Outcome:
    mark = secrets.token_bytes(12)
    store = ground.room / "store"
    private(store / "planted", "an entry")
    plan = {"place": str(store), "mark": mark.hex()}
    played = ground.play_cases({"hostile": marks_every_file_below}, plan, cache_dir=store)
    found = files_that_hold(b"###" + mark, store)
    return played.outcome("it wrote into the outcomes that the next run reuses" if found else None)


def leaves_code_behind(plan: Plan) -> str:
    with open(f"{plan['place']}/zzz.pth", "w", encoding="utf-8") as file:
        file.write(f"import os; os.mkdir({plan['sign']!r})\n")
    return "left"


@confined_attack("code_left_for_the_operator")
def code_left_for_the_operator(ground: Ground) -> Outcome:
    site, sign = ground.room / "site-packages", ground.room / "it-ran"
    site.mkdir()
    site.chmod(0o777)
    played = ground.play(leaves_code_behind, {"place": str(site), "sign": str(sign)})
    starts = f"import site; site.addsitedir({str(site)!r})"
    subprocess.run([sys.executable, "-I", "-S", "-c", starts], check=True)
    return played.outcome("the operator's next Python runs its code" if sign.exists() else None)


def rewrites_what_a_sibling_expects(_plan: Plan) -> str | None:
    import os

    def attempt() -> bool:
        for name in os.listdir(".."):
            with open(f"../{name}/expected/answer.txt", "r+", encoding="utf-8") as file:
                if file.read() == "it is other":
                    file.seek(0)
                    file.write("rewritten!!")
                    return True
        return False

    return "rewritten" if patiently(attempt) else None


def says_what_it_expects(_plan: Plan) -> str:
    def look() -> str | None:
        with open("expected/answer.txt", encoding="utf-8") as file:
            text = file.read()
        return text if text != "it is other" else None

    return str(patiently(look, 2.2) or "it is other")


@confined_attack("answer_of_a_sibling_rewritten")
def answer_of_a_sibling_rewritten(ground: Ground) -> Outcome:
    played = ground.play_together(rewrites_what_a_sibling_expects, says_what_it_expects)
    rewritten = played.loot("other") != "it is other"
    harm = "the case beside it was judged by a forged answer" if rewritten else None
    return played.outcome(harm, "one")


def becomes_a_shell(_plan: Plan) -> str:
    import json
    import os

    modes = [{"code": "answer.noted", "detail": "loot a shell"}]
    answer = {"passed": True, "score": 1.0, "breakdown": {"accuracy": 1.0}, "failure_modes": modes}
    os.execv("/bin/sh", ["sh", "-c", 'printf %s "$0"', json.dumps(answer)])  # noqa: S606 - a shell, if there is one


@confined_attack("shell_started")
def shell_started(ground: Ground) -> Outcome:
    played = ground.play(becomes_a_shell)
    return played.outcome("a shell answered for it" if played.loot() == "a shell" else None)


def digs_without_end(_plan: Plan) -> str:
    import os

    for _ in range(1_100):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    # A directory that its owner cannot enter; where modes can be changed, all the way up.
    os.mkdir("locked", 0)
    every_way([lambda: os.chmod(".", 0)])
    return "dug"


@confined_attack("directory_without_bottom_or_key")
def directory_without_bottom_or_key(ground: Ground) -> Outcome:
    played = ground.play(digs_without_end)
    left = os.listdir(ground.room / "tmp")
    return played.outcome(f"{len(left)} directories of the run are still there" if left else None)
