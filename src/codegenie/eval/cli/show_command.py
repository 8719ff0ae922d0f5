"""`codegenie eval show`: one run, or one case of it, from the verified log and the journal."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from codegenie.eval.accounting import Totals
from codegenie.eval.aggregation import mean_over_units
from codegenie.eval.bench.shipped import Benches
from codegenie.eval.cli.ending import benches_until_signal, log_until_signal
from codegenie.eval.cli.output import say, say_json
from codegenie.eval.cli.settings import bench_root_option, json_option, out_option
from codegenie.eval.decoding import decode_json
from codegenie.eval.errors import NoCaseMatches, NotMeasured
from codegenie.eval.evidence import ATTEMPT, COLLECTED, PATCH, TrialEvidence, reused_outputs, was_collected
from codegenie.eval.limits import LIMITS
from codegenie.eval.log.artifacts import NOT_KEPT, why_not_kept
from codegenie.eval.log.changes import Origin, origin_of, trial_change
from codegenie.eval.log.diff import Change
from codegenie.eval.log.reading import verify_log
from codegenie.eval.log.run_view import RunView, view_run
from codegenie.eval.reporting.case_text import render_attempts, render_case
from codegenie.eval.reporting.run_text import render_report, steadiness_document
from codegenie.eval.reporting.unfinished_text import render_unfinished, unfinished_document
from codegenie.eval.system.clock import SystemClock
from codegenie.eval.trial import EXECUTIONS

_OUTPUTS = ("output", "output_redacted")
_WORK = (PATCH, f"{PATCH}_redacted", COLLECTED)
_PARTS = {
    "diff": _OUTPUTS,
    "output": _OUTPUTS,
    "log": ("sut_log", "sut_stdout", "sut_stderr"),
    "attempts": ("broker_ledger", "agent_file"),
    "rubric": (EXECUTIONS, "rubric_stdout", "rubric_stderr"),
}

_TITLES = {
    PATCH: "change, as the harness collected it",
    f"{PATCH}_redacted": "change, as the harness collected it, without secrets",
    COLLECTED: "what was collected",
    EXECUTIONS: "what came of the steps",
}


@click.command("show")
@click.argument("run")
@click.argument("case", required=False)
@out_option
@bench_root_option
@click.option(
    "--diff", "part", flag_value="diff", help="What the system under test changed, as the harness saw it."
)
@click.option("--output", "part", flag_value="output", help="What it returned, in its own words.")
@click.option("--log", "part", flag_value="log", help="What it wrote while it worked.")
@click.option("--attempts", "part", flag_value="attempts", help="Its attempts, and what the broker counted.")
@click.option("--rubric", "part", flag_value="rubric", help="What came of its steps, and the rubric's words.")
@json_option
def command(
    run: str, case: str | None, out: str, bench_root: Sequence[str], part: str | None, as_json: bool
) -> None:
    """Show RUN (an id, a beginning of one, or `latest`), or one CASE of it.

    A run that has not finished, or was abandoned, is shown as far as it was measured.
    """
    if part and case is None:
        raise click.UsageError(f"--{part} needs a CASE")
    with log_until_signal(Path(out)) as directory, benches_until_signal(bench_root) as benches:
        clock = SystemClock()
        view = view_run(verify_log(directory, clock, artifacts=False), run, clock)
        document, lines = _shown_run(view) if case is None else _CaseView(view, benches).shown(case, part)
    if as_json:
        incomplete = unfinished_document(view.entry, view.started, view.measured)
        say_json("codegenie.eval.show/1", {"state": view.entry.state, "incomplete": incomplete, **document})
    else:
        say(lines)


def _shown_run(view: RunView) -> tuple[dict[str, Any], list[str]]:
    report, totals = view.measured.report, Totals.of(view.trials)
    used = {"usage": totals.usage(), "durations": totals.durations()}
    if report is None:
        lines = [*render_unfinished(view.entry, view.started, view.measured, totals)]
        return {"report": None, "mean_over_units": None, "steadiness": None, **used}, lines
    over_units = mean_over_units(view.started.cases, report.per_case)
    lines = render_report(report, reused_outputs(view.trials), over_units, totals)
    computed = {"mean_over_units": over_units, "steadiness": steadiness_document(report)}
    return {"report": report.model_dump(mode="json"), **computed, **used}, lines


@dataclass(frozen=True, slots=True)
class _CaseView:
    """Shows the trials of one case of a run."""

    view: RunView
    benches: Benches

    def shown(self, case: str, part: str | None) -> tuple[dict[str, Any], list[str]]:
        """Return the JSON document and the lines of the whole case or of one part.

        Raises NoCaseMatches if the run has no such case.
        """
        run_id, planned = self.view.entry.run_id, [key for key in self.view.planned() if key[0] == case]
        if not planned:
            raise NoCaseMatches(f"run {run_id} has no case {case!a}", hint="`cases RUN` lists its cases")
        trials = [trial for trial in self.view.trials if trial.case_id == case]
        document: dict[str, Any] = {"trials": [trial.model_dump(mode="json") for trial in trials]}
        origins = [origin_of(self.view.log, self.view.entry, trial) for trial in trials]
        document["made_by"] = [asdict(origin) for origin in origins]
        if part == "diff":
            changes = [self._change(trial) for trial in trials]
            document["changes"] = [None if change is None else asdict(change) for change in changes]
        else:
            changes = [None] * len(trials)
        shown = zip(trials, origins, changes, strict=True)
        lines = [line for one in shown for line in self._lines(part, *one)]
        lines += [
            f"{name}#{trial}  has no outcome: its run is {self.view.entry.state}"
            for name, trial in planned
            if (name, trial) not in self.view.measured.trials
        ]
        return {**document, "text": lines}, lines

    def _lines(
        self, part: str | None, trial: TrialEvidence, origin: Origin, change: Change | None
    ) -> list[str]:
        if part is None:
            return render_case(trial, origin.told(trial.reused))
        title = f"--- {trial.case_id}#{trial.trial}"
        if change is not None:
            return change.lines(title)
        names = _WORK if part == "diff" and was_collected(trial) else _PARTS[part]
        if part == "attempts":
            # What void attempts left has the number of the attempt in its name.
            names += tuple(sorted(name for name in trial.artifacts if name.startswith(ATTEMPT)))
        lost = [name for name in names if name + NOT_KEPT in trial.artifacts]
        kept = [name for name in names if name in trial.artifacts]
        attempts = [f"{title} attempts", *render_attempts(trial)] if part == "attempts" else []
        if not kept and not lost and not (attempts and trial.attempts):
            made_by = origin.told(trial.reused)
            return [f"{title} left no {part} behind" + (f"; {made_by}" if made_by else "")]
        lines = [*attempts, *(f"{title} {name}: {why_not_kept(name)}" for name in lost)]
        for name in kept:
            lines += [f"{title} {_title(trial, name)}", *self._text(trial, name)]
        return lines

    def _text(self, trial: TrialEvidence, name: str) -> list[str]:
        content = self._kept(trial, name)
        if name in _OUTPUTS:
            document = decode_json(content, LIMITS.sut_output_bytes)
            spelled = json.dumps(document, indent=2, ensure_ascii=False)
            # Indented, so that no line of the agent looks like a title of ours.
            return [f"| {line}" for line in spelled.split("\n")]
        text = content.decode("utf-8", "replace")
        # A patch has the lines of files in it, and these end at line feeds only.
        return text.removesuffix("\n").split("\n") if name in _WORK else text.splitlines()

    def _change(self, trial: TrialEvidence) -> Change | None:
        """Compute the change of files that an agent returned. What was collected has its patch already."""
        name = next((name for name in _OUTPUTS if name in trial.artifacts), None)
        if name is None or was_collected(trial):
            return None
        roots = self.benches.roots_of(self.view.entry.task_class)
        return trial_change(self.view.started, trial, self._kept(trial, name), roots)

    def _kept(self, trial: TrialEvidence, name: str) -> bytes:
        content = self.view.log.artifact(trial, name)
        if content is None:
            raise NotMeasured(
                f"the {name} of case {trial.case_id!r} is missing", hint="restore artifacts/ from a copy"
            )
        return content


def _title(trial: TrialEvidence, name: str) -> str:
    if name != "output":
        return _TITLES.get(name, name)
    collected = was_collected(trial)
    return "output, with what the harness collected" if collected else "output, in the words of the agent"
