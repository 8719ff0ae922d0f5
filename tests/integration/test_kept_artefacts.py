"""What cases leave behind is capped, addressed by its hash, and free of the harness's secrets."""

import asyncio
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from blake3 import blake3

from codegenie.eval.canonical import canonical_json
from codegenie.eval.limits import LIMITS
from codegenie.eval.log import artifacts
from codegenie.eval.log.artifacts import ArtifactStore, RunArtifacts
from codegenie.eval.ports import SutAnswer, SutCase, SutFault
from codegenie.eval.sanitising import REDACTED
from tests.support.benches import ECHO_RUBRIC, HONEST_RUBRIC, write_bench
from tests.support.logs import read_records, verified
from tests.support.stores import Bench, NotingSut

TALKING_RUBRIC = """\
import json, sys
request = json.load(sys.stdin)
said = request["harness_output"]["said"]
print("the agent said " + said, file=sys.stderr)
answer = {"passed": True, "score": 1.0, "breakdown": {}, "failure_modes": []}
answer["failure_modes"].append({"code": "answer.noted", "severity": "info", "detail": said})
json.dump(answer, sys.stdout)
"""

SECRETS = {
    "plain": "hunter2-hunter2",
    "with a quote": 'pass"word"word',
    "with a backslash": "C:\\secret\\word",
    "not ASCII": "geheimwört-äöü",
    "several lines": "-----BEGIN KEY-----\nMIIEpAIBAAKCAQEA\n-----END KEY-----",
    "with a tab": "left-of-it\tright-of-it",
}


@dataclass
class Blabber(NotingSut):
    """Puts a text into its output and its log, or into its failure."""

    said: str = ""
    fails: bool = False

    async def ask(self, case: SutCase, seconds: float) -> SutAnswer | SutFault:
        await super().ask(case, seconds)
        log = f"about to say {self.said}\n".encode()
        if self.fails:
            return SutFault("sut.exception", f"ValueError: {self.said}", 0.25, log)
        return SutAnswer(canonical_json({"said": self.said}), 0.25, log)


def found_on_disk(directory: Path, text: str) -> list[str]:
    """Name every file below a directory in which a text stands, as it is or as JSON spells it."""
    spellings = {text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
    return sorted(
        path.name
        for path in directory.rglob("*")
        if path.is_file() and any(spelling.encode() in path.read_bytes() for spelling in spellings)
    )


def kept(bench: Bench) -> dict[str, bytes]:
    """Return the artefacts of the last run's only trial."""
    (trial,) = read_records(bench.log)[-1]["body"]["trials"]
    store = ArtifactStore(bench.log / "artifacts")
    return {name: store.read(digest) or b"" for name, digest in trial["artifacts"].items()}


@pytest.mark.parametrize("kind", SECRETS)
@pytest.mark.parametrize("fails", [False, True])
def test_a_secret_of_the_harness_is_written_to_no_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, fails: bool
) -> None:
    secret = SECRETS[kind]
    for name in ("evidence", "control"):
        write_bench(tmp_path / name / "bench", TALKING_RUBRIC)
    control = Bench(tmp_path / "control", Blabber(said=secret, fails=fails))
    control.run()
    assert found_on_disk(tmp_path / "control", secret), "without its variable it is no secret"

    monkeypatch.setenv("SERVICE_TOKEN", secret)
    bench = Bench(tmp_path / "evidence", Blabber(said=secret, fails=fails))
    bench.run()
    assert bench.recorded.report.passed_count == (0 if fails else 1), "it was judged as it is"
    assert found_on_disk(tmp_path / "evidence", secret) == []
    assert REDACTED.encode() in kept(bench)["sut_log"]
    verified(bench.log)


def test_a_redacted_output_has_its_own_name_and_is_not_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", SECRETS["plain"])
    write_bench(tmp_path / "bench", TALKING_RUBRIC)
    bench = Bench(tmp_path, Blabber(said=f"the word is {SECRETS['plain']}"))
    bench.run()
    assert kept(bench)["output_redacted"] == canonical_json({"said": f"the word is {REDACTED}"})
    assert "output" not in kept(bench)
    assert list((bench.store / "outputs").rglob("*.json")) == []
    bench.run()
    assert len(bench.sut.asked) == 2
    bench.sut = Blabber(said="nothing")
    bench.run()
    assert kept(bench)["output"] == canonical_json({"said": "nothing"})
    assert len(list((bench.store / "outputs").rglob("*.json"))) == 1


def test_half_a_secret_at_a_cut_is_not_kept_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of stderr and of a log is kept, and the beginning of stdout: each cut falls into the secret."""
    secret = "correct-horse-battery-staple"
    monkeypatch.setenv("SERVICE_TOKEN", secret)
    half = len(secret) // 2
    rubric = (
        "import sys\n"
        f"sys.stderr.write('x' * 100 + {secret!r} + 'y' * {LIMITS.rubric_stderr_bytes - half})\n"
        f"sys.stdout.write('x' * {LIMITS.rubric_stdout_bytes - half} + {secret!r} + 'y' * 100)\n"
    )
    write_bench(tmp_path / "bench", rubric)

    @dataclass
    class Floods(NotingSut):
        async def ask(self, case: SutCase, seconds: float) -> SutAnswer | SutFault:
            answer = await super().ask(case, seconds)
            assert isinstance(answer, SutAnswer)
            return SutAnswer(
                answer.output,
                0.0,
                (secret + "y" * LIMITS.sut_log_bytes).encode()[half:][: LIMITS.sut_log_bytes],
            )

    bench = Bench(tmp_path, Floods())
    bench.run()
    texts = kept(bench)
    assert texts.keys() == {"output", "sut_log", "rubric_stdout", "rubric_stderr"}
    for name in ("sut_log", "rubric_stdout", "rubric_stderr"):
        assert len(texts[name]) > 10_000
        assert secret[:half].encode() not in texts[name]
        assert secret[half:].encode() not in texts[name]
    assert found_on_disk(tmp_path / "runs", secret[:half]) == []


def test_artefacts_are_capped_and_addressed_by_their_hash(tmp_path: Path) -> None:
    rubric = "import sys\nsys.stderr.write('e' * 300_000)\nsys.stdout.write('o' * 3_000_000)\n"
    write_bench(tmp_path / "bench", rubric)
    bench = Bench(tmp_path, NotingSut())
    bench.run()
    texts = kept(bench)
    # Where a stream was cut, as much goes as the longest secret could have left there.
    assert 0 <= LIMITS.rubric_stderr_bytes - len(texts["rubric_stderr"]) < 10_000
    assert 0 <= LIMITS.rubric_stdout_bytes - len(texts["rubric_stdout"]) < 10_000
    files = [path for path in (bench.log / "artifacts").rglob("*") if path.is_file()]
    assert len(files) == len(texts) + 1 == 5, "and the journal"
    for path in files:
        assert path.name == blake3(path.read_bytes()).hexdigest()
        assert path.parent.name == path.name[:2]


def test_artefacts_are_on_the_disk_before_the_finish_speaks_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bench(tmp_path / "bench", HONEST_RUBRIC)
    synced: list[Path] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    bench = Bench(tmp_path, NotingSut())
    bench.run()
    files = [path for path in (bench.log / "artifacts").rglob("*") if path.is_file()]
    assert len(files) == 4
    assert read_records(bench.log)[-1]["body"]["journal"] in {path.name for path in files}
    finish = max(number for number, path in enumerate(synced) if path.name.startswith(".00000001.json"))
    assert {*files, *(path.parent for path in files)} <= set(synced[:finish])


def test_the_same_bytes_are_kept_once(tmp_path: Path) -> None:
    write_bench(tmp_path / "bench", HONEST_RUBRIC, ["one", "two"])
    bench = Bench(tmp_path, NotingSut(answer="the same"))
    bench.run()
    trials = read_records(bench.log)[-1]["body"]["trials"]
    assert trials[0]["artifacts"]["output"] == trials[1]["artifacts"]["output"]


def test_a_damaged_artefact_is_mended_by_the_next_run_that_leaves_the_same(tmp_path: Path) -> None:
    write_bench(tmp_path / "bench", HONEST_RUBRIC)
    bench = Bench(tmp_path, NotingSut())
    bench.run()
    trial = read_records(bench.log)[-1]["body"]["trials"][0]
    for digest in trial["artifacts"].values():
        (bench.log / "artifacts" / digest[:2] / digest).write_bytes(b"")
    bench.run(fresh=True)
    verified(bench.log)


LOUD_RUBRIC = """\
import json, sys
request = json.load(sys.stdin)
sys.stderr.write(request["case"]["case_id"] * 3_000)
json.dump({"passed": True, "score": 1.0, "breakdown": {}, "failure_modes": []}, sys.stdout)
"""
LOUD = [f"case-{number}" for number in range(6)]


class LoudSut(NotingSut):
    """Returns 10 kB on every case."""

    async def ask(self, case: SutCase, seconds: float) -> SutAnswer | SutFault:
        await super().ask(case, seconds)
        return SutAnswer(canonical_json({"answer": case.case_id * 1_666}), 0.25, b"")


def lowered(monkeypatch: pytest.MonkeyPatch, *, everything: int, logs: int) -> None:
    limits = replace(LIMITS, run_artifact_bytes=everything, run_log_bytes=logs)
    monkeypatch.setattr(artifacts, "LIMITS", limits)


def recorded_names(bench: Bench) -> list[set[str]]:
    return [set(trial["artifacts"]) for trial in read_records(bench.log)[-1]["body"]["trials"]]


def test_a_run_keeps_so_much_and_goes_on_without_keeping_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered(monkeypatch, everything=110_000, logs=40_000)
    write_bench(tmp_path / "bench", LOUD_RUBRIC, LOUD)
    bench = Bench(tmp_path, LoudSut())
    bench.run()
    names = recorded_names(bench)
    kept_bytes = sum(path.stat().st_size for path in (bench.log / "artifacts").rglob("*") if path.is_file())

    assert bench.recorded.report.passed_count == len(LOUD)
    assert bench.recorded.chain_head is not None
    assert kept_bytes <= 110_000
    # Two loud logs are all that half of the room takes. The outputs are all there.
    assert sum("rubric_stderr" in of_case for of_case in names) == 2
    assert sum("rubric_stderr_not_kept" in of_case for of_case in names) == 4
    assert all("output" in of_case for of_case in names)
    assert "rubric_stderr of 4 trials not kept: the run's logs reached 0 MiB" in bench.recorded.notes
    log = verified(bench.log)
    assert (log.artifacts_missing, log.artifacts_checked > 0) == (4, True)


def test_outputs_that_find_no_room_are_missing_and_not_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered(monkeypatch, everything=25_000, logs=0)
    write_bench(tmp_path / "bench", LOUD_RUBRIC, LOUD)
    bench = Bench(tmp_path, LoudSut())
    bench.run()
    names = recorded_names(bench)

    assert sum("output" in of_case for of_case in names) == 2
    assert sum("output_not_kept" in of_case for of_case in names) == 4
    assert "output of 4 trials not kept: the run's artefacts reached 0 MiB" in bench.recorded.notes
    verified(bench.log)


def test_what_is_there_already_takes_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_bench(tmp_path / "bench", LOUD_RUBRIC, LOUD)
    bench = Bench(tmp_path, LoudSut())
    bench.run()
    lowered(monkeypatch, everything=0, logs=0)
    bench.run(fresh=True)

    assert recorded_names(bench) == [{"output", "rubric_stdout", "rubric_stderr"}] * len(LOUD)


def test_what_a_dead_run_had_kept_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ArtifactStore(tmp_path)
    lowered(monkeypatch, everything=30, logs=10)
    kept = [
        {"output": store.keep(b"o" * 15)},
        {"output": store.keep(b"o" * 15), "sut_log": store.keep(b"l" * 8)},
    ]
    resumed = RunArtifacts(store)
    resumed.count([*kept, {"rubric_stdout_not_kept": "0" * 64}])

    assert resumed.keep("sut_log", b"new")[0] == "sut_log_not_kept"
    assert resumed.keep("output", b"x" * 8)[0] == "output_not_kept"
    assert resumed.keep("output", b"x" * 7)[0] == "output"


def test_a_redacted_output_that_is_not_kept_is_not_stored_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", SECRETS["plain"])
    lowered(monkeypatch, everything=0, logs=0)
    write_bench(tmp_path / "bench", TALKING_RUBRIC)
    bench = Bench(tmp_path, Blabber(said=f"the word is {SECRETS['plain']}"))
    bench.run()

    assert "output_redacted_not_kept" in recorded_names(bench)[0]
    assert list((bench.store / "outputs").rglob("*.json")) == []


def test_an_output_as_deep_as_the_decoder_allows_is_reused(tmp_path: Path) -> None:
    deep: object = "bottom"
    for _ in range(LIMITS.nesting - 3):
        deep = [deep]
    write_bench(tmp_path / "bench", ECHO_RUBRIC)

    class Deep(NotingSut):
        async def ask(self, case: SutCase, seconds: float) -> SutAnswer | SutFault:
            await super().ask(case, seconds)
            await asyncio.sleep(0)
            return SutAnswer(canonical_json({"deep": deep}), 0.0)

    bench = Bench(tmp_path, Deep())
    bench.run()
    assert bench.run() == []
    assert len(bench.sut.asked) == 1
