"""`codegenie eval show`: one run, or one case of it, from the verified log."""

import json
from pathlib import Path
from typing import Any

import click

from codegenie.eval.cli.ending import log_until_signal
from codegenie.eval.cli.output import say, say_json
from codegenie.eval.cli.settings import json_option, out_option
from codegenie.eval.decoding import decode_json
from codegenie.eval.errors import NoCaseMatches, NotMeasured
from codegenie.eval.evidence import TrialEvidence, reused_outputs
from codegenie.eval.inspection import VerifiedLog, verify_log
from codegenie.eval.limits import LIMITS
from codegenie.eval.reporting.cases import render_case
from codegenie.eval.reporting.terminal import render_report
from codegenie.eval.runner import SystemClock

_PARTS = {
    "diff": ("output", "output_redacted"),
    "log": ("sut_log",),
    "rubric": ("rubric_stdout", "rubric_stderr"),
}


@click.command("show")
@click.argument("run")
@click.argument("case", required=False)
@out_option
@click.option("--diff", "part", flag_value="diff", help="What the system under test changed.")
@click.option("--log", "part", flag_value="log", help="What it wrote while it worked.")
@click.option("--rubric", "part", flag_value="rubric", help="What the rubric wrote.")
@json_option
def command(run: str, case: str | None, out: str, part: str | None, as_json: bool) -> None:
    """Show RUN (an id, a beginning of one, or `latest`), or one CASE of it."""
    if part and case is None:
        raise click.UsageError(f"--{part} needs a CASE")
    with log_until_signal(Path(out)) as directory:
        log = verify_log(directory, SystemClock(), artifacts=False)
        finished = log.finished(log.find(run))
        if case is None:
            document: dict[str, Any] = {"report": finished.report.model_dump(mode="json")}
            lines = render_report(finished.report, reused_outputs(finished.trials))
        else:
            trials = [trial for trial in finished.trials if trial.case_id == case]
            if not trials:
                raise NoCaseMatches(
                    f"run {finished.report.run_id} has no case {case!a}", hint="`show RUN` names its cases"
                )
            lines = [line for trial in trials for line in _case_lines(log, trial, part)]
            document = {"trials": [trial.model_dump(mode="json") for trial in trials], "text": lines}
    if as_json:
        say_json("codegenie.eval.show/1", document)
    else:
        say(lines)


def _case_lines(log: VerifiedLog, trial: TrialEvidence, part: str | None) -> list[str]:
    if part is None:
        return render_case(trial)
    title = f"--- {trial.case_id}#{trial.trial}"
    kept = [name for name in _PARTS[part] if name in trial.artifacts]
    if not kept:
        whence = "" if trial.reused == "none" else f"; reused: {trial.reused}, see the run that made it"
        return [f"{title} left no {part} behind{whence}"]
    lines = []
    for name in kept:
        content = log.artifact(trial, name)
        if content is None:
            raise NotMeasured(
                f"the {name} of case {trial.case_id!r} is gone", hint="restore artifacts/ from a copy"
            )
        lines += [f"{title} {name}", *_text(name, content)]
    return lines


def _text(name: str, content: bytes) -> list[str]:
    text = content.decode("utf-8", "replace")
    if name.startswith("output"):
        output = decode_json(content, LIMITS.sut_output_bytes)
        diff = output.get("diff") if isinstance(output, dict) else None
        text = diff if isinstance(diff, str) and diff else json.dumps(output, indent=2, ensure_ascii=False)
    return text.splitlines()
