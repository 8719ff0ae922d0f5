"""`codegenie eval verify`: recompute all claims of a log or a bundle, and say which were not checked."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from codegenie.eval.cli.ending import benches_until_signal, log_until_signal
from codegenie.eval.cli.output import say, say_json
from codegenie.eval.cli.settings import bench_root_option, expect_head_option, json_option, out_option
from codegenie.eval.errors import IntegrityError, NotMeasured, SettingsInvalid
from codegenie.eval.log.chain import record_name
from codegenie.eval.log.reading import VerifiedLog
from codegenie.eval.log.runs import RunEntry
from codegenie.eval.sanitising import printable
from codegenie.eval.system.clock import SystemClock
from codegenie.eval.verification import Verification
from codegenie.eval.wording import counted


@click.command("verify")
@out_option
@bench_root_option
@expect_head_option
@click.option("--rescore", "again", is_flag=True, help="Run the rubrics again on the stored outputs.")
@click.option(
    "--re-execute", "execute", is_flag=True, help="With --rescore: execute the steps of cases again, too."
)
@click.option(
    "--isolation",
    # Only the flag sets this, so it has a name that no settings file and no variable uses.
    "rescore_isolation",
    type=click.Choice(["auto", "namespace", "landlock", "subprocess"]),
    default="auto",
    show_default=True,
    help="The class in which --rescore runs rubrics, whatever class the log names.",
)
@click.option(
    "--task-class", "classes", multiple=True, metavar="NAME", help="Compare this bench only; may be repeated."
)
@json_option
def command(
    out: str,
    bench_root: Sequence[str],
    expected: str | None,
    again: bool,
    execute: bool,
    rescore_isolation: str,
    classes: Sequence[str],
    as_json: bool,
) -> int:
    """Verify the audit log, or a bundle made by `export`, and recompute every number in it.

    Exits with 0 if everything is right; with 2 if a flag is wrong; with 3 if something is not, and names the
    first such thing; with 4 if there is no log, or if --rescore could judge no output again.
    """
    with log_until_signal(Path(out)) as directory, benches_until_signal(bench_root) as benches:
        verification = Verification(VerifiedLog(directory))
        asked = partial(verification.check, benches.roots_of, SystemClock(), expected, classes)
        if execute and not again:
            raise SettingsInvalid("--re-execute works with --rescore only", hint="say --rescore, too")
        rescore = partial(verification.rescore, rescore_isolation, execute=execute) if again else None
        problem = _problem(verification, asked, rescore)
    document = _facts(verification) | problem
    if as_json:
        say_json("codegenie.eval.verify/1", document)
    else:
        say(_lines(document))
    if document["ok"]:
        return 0
    return NotMeasured.exit_code if document["not_measured"] else IntegrityError.exit_code


def _problem(
    verification: Verification,
    check: Callable[[], None],
    rescore: Callable[[], Coroutine[Any, Any, None]] | None,
) -> dict[str, Any]:
    """Check everything, rescore if that is asked for, and return the first problem and its place."""
    try:
        check()
        if rescore is not None:
            asyncio.run(rescore())
    except IntegrityError as error:
        where = (error.where or "").removeprefix(f"{verification.log.directory}/")
        return {"ok": False, "reason": printable(error.message), "file": printable(where)}
    if verification.differences:
        entry, difference = verification.differences[0]
        reason = f"the rubric of case {difference.case_id} now gives another answer for the stored output"
        if entry.run_id in verification.other_classes:
            reason += f" (in {verification.rescored_in}, where the run says {_class_of(verification, entry)})"
        return {"ok": False, "reason": reason, "file": record_name(entry.finished_index or 0)}
    for name, stale in verification.benches_stale.items():
        return {"ok": False, "reason": f"bench {name}: {stale.message}", "file": f"{name}/{stale.where}"}
    nothing = verification.nothing_rescored if rescore is not None else None
    if nothing is not None:
        reason = f"nothing could be rescored: {nothing}"
        return {"ok": False, "not_measured": True, "reason": printable(reason), "file": ""}
    return {"ok": True}


def _class_of(verification: Verification, entry: RunEntry) -> str | None:
    """Return the class that a run names for its rubrics."""
    return verification.other_classes.get(entry.run_id, verification.rescored_in)


def _facts(verification: Verification) -> dict[str, Any]:
    log = verification.log
    return {
        "ok": False,
        "not_measured": False,
        "chain_head": log.hashes[-1] if log.link and log.hashes else None,
        "records": len(log.hashes),
        "runs": len(log.history.runs),
        "unfinished_runs": [run.run_id for run in log.history.runs.values() if run.is_open],
        "abandoned_runs": {
            run.run_id: printable(run.abandoned)
            for run in log.history.runs.values()
            if run.abandoned is not None
        },
        "artifacts_checked": log.artifacts_checked,
        "artifacts_missing": log.artifacts_missing,
        "benches_changed": verification.benches_changed,
        "benches_missing": verification.benches_missing,
        "benches_invalid": {name: printable(why) for name, why in verification.benches_invalid.items()},
        "benches_stale": {name: stale.case_id for name, stale in verification.benches_stale.items()},
        "rescored": verification.rescored,
        "rescored_in": verification.rescored_in,
        "other_classes": verification.other_classes,
        "not_rescored": verification.not_rescored,
        "differences": [
            {
                "run": entry.run_id,
                **asdict(difference),
                "stored_in": _class_of(verification, entry),
                "now_in": verification.rescored_in,
            }
            for entry, difference in verification.differences
        ],
        "notes": log.notes,
        "not_checked": verification.not_checked,
    }


def _failed_runs(document: dict[str, Any]) -> list[str]:
    unfinished = [
        f"unfinished    {run} started and has not finished; it counts as failed"
        for run in document["unfinished_runs"]
    ]
    return unfinished + [
        f"abandoned     {run} counts as failed: {because}"
        for run, because in document["abandoned_runs"].items()
    ]


def _lines(document: dict[str, Any]) -> list[str]:
    counts = ", ".join(
        counted(document[key], what)
        for key, what in (("records", "record"), ("runs", "run"), ("artifacts_checked", "artefact"))
    )
    if document["ok"]:
        lines = [f"verified      {counts}"]
    else:
        lines = [
            f"{'NOT RESCORED' if document['not_measured'] else 'NOT VERIFIED'}  {document['reason']}",
            *([f"where         {document['file']}"] if document["file"] else []),
            f"log holds     {counts}" if document["chain_head"] else f"held so far   {counts}",
        ]
    if document["chain_head"]:
        lines.append(f"head          {document['chain_head']}")
    lines += _failed_runs(document)
    lines += [
        f"bench         {name} has changed since its newest run" for name in document["benches_changed"]
    ]
    lines += [f"bench         {name} is not here" for name in document["benches_missing"]]
    lines += [
        f"bench         {name} cannot be read: {why}" for name, why in document["benches_invalid"].items()
    ]
    lines += [
        f"bench         {name} is stale: case {case}" for name, case in document["benches_stale"].items()
    ]
    lines += [
        f"{difference['kind']:16} run {difference['run']} case {difference['case_id']}: score"
        f" {difference['stored']:.6f} in the log ({difference['stored_in']}),"
        f" {difference['now']:.6f} now ({difference['now_in']})"
        for difference in document["differences"]
    ]
    if document["rescored"]:
        outputs = counted(document["rescored"], "output")
        lines.append(f"rescored      {outputs} in class {document['rescored_in']}")
    lines += [
        f"class         run {run} names {named}, and was rescored in {document['rescored_in']}"
        for run, named in document["other_classes"].items()
    ]
    if document["not_rescored"]:
        outputs = counted(document["not_rescored"], "output")
        lines.append(f"not rescored  {outputs}: missing, redacted, or of another bench")
    lines += [f"note          {note}" for note in document["notes"]]
    if document["not_checked"]:
        lines.append(f"not checked   {', '.join(document['not_checked'])}")
    return lines
