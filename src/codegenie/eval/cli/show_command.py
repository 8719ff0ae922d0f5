"""`codegenie eval show`: one run, or one case of it, from the verified log."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from codegenie.eval.aggregation import mean_over_units
from codegenie.eval.bench.shipped import Benches
from codegenie.eval.cli.ending import benches_until_signal, log_until_signal
from codegenie.eval.cli.output import say, say_json
from codegenie.eval.cli.settings import bench_root_option, json_option, out_option
from codegenie.eval.errors import NoCaseMatches, NotMeasured
from codegenie.eval.evidence import UNRETURNED, TrialEvidence, reused_outputs
from codegenie.eval.log.artifacts import NOT_KEPT, why_not_kept
from codegenie.eval.log.changes import Origin, origin_of, trial_change
from codegenie.eval.log.diff import Change
from codegenie.eval.log.reading import VerifiedLog, verify_log
from codegenie.eval.log.runs import RunEntry
from codegenie.eval.reporting.case_text import render_case
from codegenie.eval.reporting.run_text import render_report
from codegenie.eval.system.clock import SystemClock

_PARTS = {
    "diff": ("output", "output_redacted"),
    "log": ("sut_log",),
    "rubric": ("rubric_stdout", "rubric_stderr"),
}


@click.command("show")
@click.argument("run")
@click.argument("case", required=False)
@out_option
@bench_root_option
@click.option("--diff", "part", flag_value="diff", help="What the system under test changed.")
@click.option("--log", "part", flag_value="log", help="What it wrote while it worked.")
@click.option("--rubric", "part", flag_value="rubric", help="What the rubric wrote.")
@json_option
def command(
    run: str, case: str | None, out: str, bench_root: Sequence[str], part: str | None, as_json: bool
) -> None:
    """Show RUN (an id, a beginning of one, or `latest`), or one CASE of it."""
    if part and case is None:
        raise click.UsageError(f"--{part} needs a CASE")
    with log_until_signal(Path(out)) as directory, benches_until_signal(bench_root) as benches:
        log = verify_log(directory, SystemClock(), artifacts=False)
        entry = log.find(run)
        document, lines = (
            _shown_run(log, entry) if case is None else _CaseView(log, entry, benches).shown(case, part)
        )
    if as_json:
        say_json("codegenie.eval.show/1", document)
    else:
        say(lines)


def _shown_run(log: VerifiedLog, entry: RunEntry) -> tuple[dict[str, Any], list[str]]:
    finished = log.finished(entry)
    over_units = mean_over_units(log.started(entry).cases, finished.report.per_case)
    lines = render_report(finished.report, reused_outputs(finished.trials), over_units)
    return {"report": finished.report.model_dump(mode="json"), "mean_over_units": over_units}, lines


@dataclass(frozen=True, slots=True)
class _CaseView:
    """Shows the trials of one case of a run."""

    log: VerifiedLog
    entry: RunEntry
    benches: Benches

    def shown(self, case: str, part: str | None) -> tuple[dict[str, Any], list[str]]:
        """Return the JSON document and the lines of the whole case or of one part.

        Raises NoCaseMatches if the run has no such case.
        """
        trials = [trial for trial in self.log.finished(self.entry).trials if trial.case_id == case]
        if not trials:
            raise NoCaseMatches(
                f"run {self.entry.run_id} has no case {case!a}", hint="`show RUN` names its cases"
            )
        document: dict[str, Any] = {"trials": [trial.model_dump(mode="json") for trial in trials]}
        origins = [origin_of(self.log, self.entry, trial) for trial in trials]
        document["made_by"] = [asdict(origin) for origin in origins]
        if part == "diff":
            changes = [self._change(trial) for trial in trials]
            document["changes"] = [None if change is None else _told(change) for change in changes]
        else:
            changes = [None] * len(trials)
        shown = zip(trials, origins, changes, strict=True)
        lines = [line for one in shown for line in self._lines(part, *one)]
        return {**document, "text": lines}, lines

    def _lines(
        self, part: str | None, trial: TrialEvidence, origin: Origin, change: Change | None
    ) -> list[str]:
        if part is None:
            return render_case(trial, origin.told(trial.reused))
        title = f"--- {trial.case_id}#{trial.trial}"
        if change is not None:
            return [*change.lines(title), *self._unreturned(title, trial)]
        lost = [name for name in _PARTS[part] if name + NOT_KEPT in trial.artifacts]
        kept = [name for name in _PARTS[part] if name in trial.artifacts]
        if not kept and not lost:
            made_by = origin.told(trial.reused)
            return [f"{title} left no {part} behind" + (f"; {made_by}" if made_by else "")]
        lines = [f"{title} {name}: {why_not_kept(name)}" for name in lost]
        for name in kept:
            text = self._kept(trial, name).decode("utf-8", "replace")
            lines += [f"{title} {name}", *text.splitlines()]
        return lines

    def _unreturned(self, title: str, trial: TrialEvidence) -> list[str]:
        content = self.log.artifact(trial, UNRETURNED) or b""
        text = content.decode("utf-8", "replace").splitlines()
        return [f"{title} {text[0]}", *text[1:]] if text else []

    def _change(self, trial: TrialEvidence) -> Change | None:
        name = next((name for name in _PARTS["diff"] if name in trial.artifacts), None)
        if name is None:
            return None
        roots = self.benches.roots_of(self.entry.task_class)
        return trial_change(self.log.started(self.entry), trial, self._kept(trial, name), roots)

    def _kept(self, trial: TrialEvidence, name: str) -> bytes:
        content = self.log.artifact(trial, name)
        if content is None:
            raise NotMeasured(
                f"the {name} of case {trial.case_id!r} is missing", hint="restore artifacts/ from a copy"
            )
        return content


def _told(change: Change) -> dict[str, Any]:
    return {
        "computed": None if change.computed is None else list(change.computed),
        "not_computed": change.not_computed,
        "written_by_the_agent": change.claimed,
    }
