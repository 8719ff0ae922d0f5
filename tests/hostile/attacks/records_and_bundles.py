"""Records that contradict themselves, bundles that cost too much, benches that speak for others."""

import asyncio
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from codegenie.eval.canonical import digest_json
from codegenie.eval.models import RunOptions
from codegenie.eval.runner import Runner
from codegenie.eval.suts.builtin import NullSut
from tests.hostile.attackers.hostile_bench import (
    HOSTILE,
    answer_with,
    judged,
    refused,
    rubric_that,
    run_hostile,
)
from tests.hostile.engine.stage import Outcome, attack, twin
from tests.support.benches import HONEST_RUBRIC, TASK_CLASS, write_bench
from tests.support.commands import call, environment, eval_argv, run_argv
from tests.support.logs import probes, read_records, record_run, verified, write_log

MIB = 1024**2
# What a command takes that refuses in time is some 50 MiB.
TOO_MUCH = 150 * MIB
_NOTES = """\
notes = [{{"code": "answer.noted", "detail": f"{{n:03}}" + {filler!r}}} for n in range({count})]
json.dump({answer} | {{"failure_modes": notes}}, sys.stdout)
"""


def _noting(count: int, filler: str) -> str:
    return rubric_that(_NOTES.format(filler=filler, count=count, answer=dict(answer_with())))


@attack("answer_too_heavy_to_record")
def answer_too_heavy_to_record(room: Path) -> Outcome:
    report = run_hostile(room, _noting(256, "\N{GRINNING FACE}" * 197))
    taken = (room / "runs" / "00000001.json").stat().st_size
    return judged(
        report, lambda _: f"one case takes {taken} bytes of its record" if taken > 200_000 else None
    )


@twin("answer_too_heavy_to_record")
def a_verbose_answer(room: Path) -> Outcome:
    return judged(run_hostile(room, _noting(40, "a line that is too long for this rubric")), lambda _: None)


def _planned(room: Path, cases: int) -> Callable[[], object]:
    root = write_bench(room / "bench", HONEST_RUBRIC, [f"c{number:03}" for number in range(cases)])
    return lambda: Runner().plan(
        task_class_name=TASK_CLASS,
        bench_root=root,
        out_dir=room / "runs",
        options=RunOptions(trials=1_000),
    )


@attack("plan_too_large_to_record")
def plan_too_large_to_record(room: Path) -> Outcome:
    met = refused(_planned(room, 121))
    # Each may end in a failure of a thousand bytes, which is recorded three times.
    return Outcome(met, "planned 121,000 trials" if met == "accepted" else None)


@twin("plan_too_large_to_record")
def a_plan_that_fits(room: Path) -> Outcome:
    return Outcome(refused(_planned(room, 119)))


def _asked(room: Path, *arguments: str) -> tuple[str, int]:
    """Call a command; return how it ended and the most memory that it was seen to hold."""
    most = 0
    with (room / "said").open("wb") as said:
        process = subprocess.Popen(
            eval_argv(*arguments), cwd=room, env=environment(), stdout=said, stderr=subprocess.STDOUT
        )
        while process.poll() is None:
            # Not what `wait4` says: that begins with the memory of whoever started the process.
            seen = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text("utf-8"))
            most = max(most, int(seen[1]) * 1024 if seen else 0)
            time.sleep(0.005)
    return f"exit {process.returncode}", most


def _costly(room: Path, out: str) -> Outcome:
    met, memory = _asked(room, "verify", "--out", out)
    return Outcome(met, f"took {memory // MIB} MiB" if memory > TOO_MUCH else None)


def _exported(room: Path) -> str:
    """Record one run and pack it."""
    record_run(write_bench(room / "bench"), room / "runs")
    _asked(room, "export", "latest", "--out", "runs", "-o", "run.zip")
    return "run.zip"


@attack("record_of_empty_lists")
def record_of_empty_lists(room: Path) -> Outcome:
    (room / "runs").mkdir()
    (room / "runs" / "00000000.json").write_bytes(b'{"a":[[]' + b",[]" * 2_000_000 + b"]}")
    (room / "runs" / "HEAD").write_text(f"1 {'0' * 64}\n", encoding="utf-8")
    return _costly(room, "runs")


def _record_of(room: Path, kind: str, body: str) -> Outcome:
    """Let `verify` read a log of one record, of which only the body is odd."""
    link = f'"index":0,"kind":"run.{kind}","previous":"{"0" * 64}"'
    tail = link + ',"recorded_at":"2026-01-01T00:00:00Z","run_id":"0","schema":"codegenie.eval.record/1"}'
    (room / "runs").mkdir()
    (room / "runs" / "00000000.json").write_text('{"body":' + body + "," + tail, encoding="ascii")
    (room / "runs" / "HEAD").write_text(f"1 {'0' * 64}\n", encoding="utf-8")
    return _costly(room, "runs")


@attack("record_without_its_fields")
def record_without_its_fields(room: Path) -> Outcome:
    return _record_of(room, "started", '{"breakdown_keys":[' + '"aaaaa",' * 400_000 + '"aaaaa"]}')


@attack("record_of_wrong_items")
def record_of_wrong_items(room: Path) -> Outcome:
    return _record_of(room, "finished", '{"report":{},"trials":[' + "1000000," * 400_000 + "1]}")


@attack("record_of_unknown_fields")
def record_of_unknown_fields(room: Path) -> Outcome:
    return _record_of(room, "started", "{" + ",".join(f'"k{n}":0' for n in range(300_000)) + "}")


@twin("record_without_its_fields")
@twin("record_of_wrong_items")
@twin("record_of_unknown_fields")
@twin("record_of_empty_lists")
def a_log_from_elsewhere(room: Path) -> Outcome:
    record_run(write_bench(room / "bench"), room / "runs")
    return _costly(room, "runs")


@attack("bundle_of_one_dense_record")
def bundle_of_one_dense_record(room: Path) -> Outcome:
    link = f'"index":0,"kind":"run.finished","previous":"{"0" * 64}"'
    tail = link + ',"recorded_at":"0","run_id":"0","schema":"a"}'
    with zipfile.ZipFile(room / "run.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        packed.writestr("HEAD", f"1 {'0' * 64}\n")
        packed.writestr("00000000.json", '{"body":[""' + ',["aaaaaaaaaaa"]' * 2_000_000 + "]," + tail)
    return _costly(room, "run.zip")


@twin("bundle_of_one_dense_record")
def a_bundle_of_ours(room: Path) -> Outcome:
    return _costly(room, _exported(room))


@attack("bundle_of_half_a_million_entries")
def bundle_of_half_a_million_entries(room: Path) -> Outcome:
    count = 500_000
    entry = struct.pack("<4s4B4HL2L5H2L", b"PK\1\2", 20, 3, 20, *[0] * 4, 33, 0, 0, 0, 1, *[0] * 6) + b"x"
    size = len(entry) * count
    end64 = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, 0)
    end64 += struct.pack("<4sLQL", b"PK\6\7", 0, size, 1)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    (room / "run.zip").write_bytes(entry * count + end64 + end)
    return _costly(room, "run.zip")


@twin("bundle_of_half_a_million_entries")
def a_bundle_with_its_few_files(room: Path) -> Outcome:
    return _costly(room, _exported(room))


def _forged(room: Path, edit: Callable[[dict[str, Any], dict[str, Any]], object]) -> str:
    """Record a run, change its start and its report, chain both anew and ask whether the log holds."""
    if not (room / "runs").exists():
        record_run(write_bench(room / "bench"), room / "runs")
    started, finished = read_records(room / "runs")
    edit(started, finished)
    write_log(room / "runs", [started, finished])
    return refused(lambda: verified(room / "runs"))


def _believed(met: list[str], what: str) -> Outcome:
    answers = sorted(set(met))
    return Outcome(" ".join(answers), f"verify believes {what}" if "accepted" in answers else None)


def _isolated(results: list[dict[str, Any]]) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    def edit(started: dict[str, Any], finished: dict[str, Any]) -> None:
        started["body"]["isolation"] |= {"isolation_class": "namespace", "probes": results}
        finished["body"]["report"]["isolation_class"] = "namespace"

    return edit


@attack("isolation_without_proof")
def isolation_without_proof(room: Path) -> Outcome:
    whole = probes("namespace")
    got_through = [{**whole[0], "blocked": False}, *whole[1:]]
    met = [_forged(room, _isolated(claimed)) for claimed in ([], whole[1:], got_through)]
    return _believed(met, "in an isolation that nothing proves")


@twin("isolation_without_proof")
def an_isolation_with_its_probes(room: Path) -> Outcome:
    return Outcome(_forged(room, _isolated(probes("namespace"))))


@attack("in_process_run_sold_as_another_process")
def in_process_run_sold_as_another_process(room: Path) -> Outcome:
    def edit(started: dict[str, Any], finished: dict[str, Any]) -> None:
        started["body"]["sut_boundary"] = finished["body"]["report"]["sut_boundary"] = "process"

    return _believed([_forged(room, edit)], "that the agent had a process of its own")


@twin("in_process_run_sold_as_another_process")
def an_in_process_run(room: Path) -> Outcome:
    return Outcome(_forged(room, lambda *_: None))


@attack("report_dated_apart_from_its_records")
def report_dated_apart_from_its_records(room: Path) -> Outcome:
    def dated(name: str, value: str) -> Callable[[dict[str, Any], dict[str, Any]], None]:
        return lambda _started, finished: finished["body"]["report"].update({name: value})

    met = [_forged(room, dated("ended_at", "2076-01-01T00:00:00Z"))]
    shutil.rmtree(room / "runs")
    shutil.rmtree(room / "bench")
    met.append(_forged(room, dated("started_at", "2001-01-01T00:00:00Z")))
    return _believed(met, "a report that is dated otherwise than its records")


@twin("report_dated_apart_from_its_records")
def a_report_by_a_clock_that_was_set(room: Path) -> Outcome:
    def edit(_started: dict[str, Any], finished: dict[str, Any]) -> None:
        finished["recorded_at"] = finished["body"]["report"]["ended_at"] = "2001-01-01T00:00:00Z"

    return Outcome(_forged(room, edit))


def _flooded(room: Path, *arguments: str) -> Outcome:
    met, _ = _asked(room, *arguments, "--out", "runs")
    said = (room / "said").stat().st_size
    return Outcome(met, f"printed {said} bytes" if said > 20_000 else None)


@attack("message_that_quotes_megabytes")
def message_that_quotes_megabytes(room: Path) -> Outcome:
    _forged(room, lambda _, finished: finished["body"].update({"k" * 2_000_000: 1}))
    return _flooded(room, "verify")


@twin("message_that_quotes_megabytes")
def a_log_without_that_key(room: Path) -> Outcome:
    _forged(room, lambda *_: None)
    return _flooded(room, "verify")


@attack("spec_of_three_hundred_thousand_characters")
def spec_of_three_hundred_thousand_characters(room: Path) -> Outcome:
    sut = {"spec": "python:" + "a" * 300_000, "version": None, "digest": None}
    named = {
        "sut": sut,
        "sut_identity_digest": digest_json("sut-identity.v1", sut),
        "sut_boundary": "process",
    }
    _forged(room, lambda *both: (both[0]["body"].update(named), both[1]["body"]["report"].update(named)))
    return _flooded(room, "show", "latest")


@twin("spec_of_three_hundred_thousand_characters")
def a_run_to_look_at(room: Path) -> Outcome:
    _forged(room, lambda *_: None)
    return _flooded(room, "show", "latest")


def _two_benches(room: Path) -> Path:
    """Record a run of each of two benches in one log; return the directory of the hostile one."""
    for name in ("honest", HOSTILE):
        write_bench(room / "bench", name=name)
        plan = Runner().plan(task_class_name=name, bench_root=room / "bench", out_dir=room / "runs")
        asyncio.run(Runner().record(plan, system_under_test=NullSut()))
    return room / "bench" / HOSTILE


def _verified(room: Path) -> tuple[str, dict[str, Any]]:
    met, _ = _asked(room, "verify", "--rescore", "--out", "runs", "--json")
    return met, json.loads((room / "said").read_bytes())


@attack("stray_file_that_silences_verify")
def stray_file_that_silences_verify(room: Path) -> Outcome:
    (_two_benches(room) / "stray").touch()
    met, document = _verified(room)
    return Outcome(met, None if document.get("chain_head") else "verify is silent about the log")


@attack("stale_bench_that_stops_the_rescoring_of_others")
def stale_bench_that_stops_the_rescoring_of_others(room: Path) -> Outcome:
    (_two_benches(room) / "cases" / "one" / "input" / "question.txt").write_text(
        "another\n", encoding="utf-8"
    )
    met, document = _verified(room)
    return Outcome(met, None if document.get("rescored") == 1 else "nothing was judged again")


@twin("stray_file_that_silences_verify")
@twin("stale_bench_that_stops_the_rescoring_of_others")
def two_benches_in_one_log(room: Path) -> Outcome:
    _two_benches(room)
    met, document = _verified(room)
    return Outcome(met, None if document["rescored"] == 2 else "not both were judged again")


_MOODY = """\
import os


def solve(case):
    return {{"answer": "" if os.path.exists({marker!r}) else f"it is {{case.case_id}}"}}
"""


def _judged_from_a_bundle(room: Path, *, second: bool) -> str:
    write_bench(room / "bench", cases=[f"c{number}" for number in range(6)])
    (room / "agent.py").write_text(_MOODY.format(marker=str(room / "bad")), encoding="utf-8")
    (room / "trust-tiers.yaml").write_text("thresholds: {bronze: 0.5}\n", encoding="utf-8")
    call(run_argv("--out", "runs", "--cache", "cache"), room)
    if second:
        (room / "bad").touch()
        call(run_argv("--out", "runs", "--cache", "cache"), room)
    first = read_records(room / "runs")[0]["run_id"]
    call(eval_argv("export", first, "--out", "runs", "-o", "run.zip"), room)
    judge = eval_argv("promote-verdict", TASK_CLASS, "--tier", "bronze", "--out", "run.zip", "--run", first)
    return f"exit {call(judge, room).returncode}"


@attack("bundle_that_forgets_the_failed_looks")
def bundle_that_forgets_the_failed_looks(room: Path) -> Outcome:
    met = _judged_from_a_bundle(room, second=True)
    return Outcome(met, "promoted by its one good day" if met == "exit 0" else None)


@twin("bundle_that_forgets_the_failed_looks")
def a_bundle_of_the_only_look(room: Path) -> Outcome:
    return Outcome(_judged_from_a_bundle(room, second=False))


_DIGS = """\
import os

os.chdir(os.environ["TMPDIR"])
for _ in range({depth}):
    os.mkdir("d")
    os.chdir("d")


def solve(case):
    return {{}}
"""


def _imported(room: Path, depth: int) -> Outcome:
    write_bench(room / "bench")
    (room / "tmp").mkdir()
    (room / "agent.py").write_text(_DIGS.format(depth=depth), encoding="utf-8")
    argv = run_argv("--out", "runs", "--cache", "cache", "--cases", "one")
    done = call(argv, room, environment(TMPDIR=str(room / "tmp")))
    left = os.listdir(room / "tmp")
    # Not by Python's own way: it recurses, which is what this is about.
    subprocess.run(["rm", "-rf", str(room / "tmp")], check=True)
    return Outcome(f"exit {done.returncode}", f"left {left}" if left else None)


@attack("agent_that_digs_while_it_is_imported")
def agent_that_digs_while_it_is_imported(room: Path) -> Outcome:
    return _imported(room, 1_100)


@twin("agent_that_digs_while_it_is_imported")
def agent_that_makes_a_directory(room: Path) -> Outcome:
    return _imported(room, 1)


def _verify_bundle(room: Path, *, end_it: bool) -> Outcome:
    name = _exported(room)
    with zipfile.ZipFile(room / name, "a") as packed:
        for number in range(0xA0, 0xC8):
            packed.writestr(f"artifacts/{number:02x}/{number:02x}{'0' * 62}", bytes(MIB))
    places = room / "tmp"
    places.mkdir()
    process = subprocess.Popen(
        eval_argv("verify", "--out", name),
        cwd=room,
        env=environment(TMPDIR=str(places)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while process.poll() is None and not any(places.glob("*/*")):
        time.sleep(0.001)
    if end_it:
        process.send_signal(signal.SIGTERM)
    code = process.wait()
    left = os.listdir(places)
    shutil.rmtree(places)
    return Outcome(f"exit {code}", f"left {left}" if left else None)


@attack("bundle_left_behind_by_a_signal")
def bundle_left_behind_by_a_signal(room: Path) -> Outcome:
    return _verify_bundle(room, end_it=True)


@twin("bundle_left_behind_by_a_signal")
def a_bundle_that_is_verified_to_its_end(room: Path) -> Outcome:
    return _verify_bundle(room, end_it=False)
