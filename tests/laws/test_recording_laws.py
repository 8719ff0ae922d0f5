"""A recording is found changed whichever bit of it is flipped, and gives back what was put into it."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codegenie.eval.canonical import canonical_json
from codegenie.eval.errors import SutSpecInvalid
from codegenie.eval.ports import SutAnswer, SutCase
from codegenie.eval.recordings.records import RecordedTrial, read_trial, trial_bytes
from tests.support.benches import ECHO_RUBRIC, TASK_CLASS, write_bench
from tests.support.recorded import RecordedPlace, recorded_place, scores

LAW = settings(
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    database=None,
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


SHARES = st.floats(0.0, 1.0)
VERDICTS = st.fixed_dictionaries(
    {
        "passed": st.booleans(),
        "score": SHARES,
        "breakdown": st.dictionaries(st.sampled_from(["accuracy", "not.declared"]), SHARES, max_size=2),
        "failure_modes": st.just([]),
    }
)


@settings(LAW, max_examples=6)
@given(outputs=st.lists(VERDICTS | st.dictionaries(st.text(max_size=4), VALUES), min_size=6, max_size=6))
def test_whatever_an_agent_returned_a_replay_has_the_same_scores(
    tmp_path_factory: pytest.TempPathFactory, outputs: list[dict[str, Any]]
) -> None:
    place = RecordedPlace(tmp_path_factory.mktemp("any"))
    write_bench(place.bench, ECHO_RUBRIC, [f"case-{number}" for number in range(len(outputs))])

    async def agent(case: SutCase) -> dict[str, Any]:
        await asyncio.sleep(0)
        return outputs[int(case.case_id[-1])]

    recorded = place.record(agent, trials=1)

    assert scores(place.replay(trials=1)) == scores(recorded)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> RecordedPlace:
    return recorded_place(tmp_path_factory.mktemp("recorded"))


@LAW
@given(data=st.data())
def test_a_flipped_bit_of_a_recording_is_found_and_its_file_is_named(
    made: RecordedPlace, data: st.DataObject
) -> None:
    file = data.draw(st.sampled_from(made.files))
    whole = file.read_bytes()
    bit = data.draw(st.integers(0, len(whole) * 8 - 1))
    raw = bytearray(whole)
    raw[bit // 8] ^= 1 << bit % 8
    file.write_bytes(raw)
    try:
        with pytest.raises(SutSpecInvalid) as caught:
            made.opened()
    finally:
        file.write_bytes(whole)
    assert caught.value.where == str(file)


@LAW
@given(data=st.data())
def test_a_recording_that_lost_or_gained_bytes_is_refused(made: RecordedPlace, data: st.DataObject) -> None:
    file = data.draw(st.sampled_from(made.files))
    whole = file.read_bytes()
    at = data.draw(st.integers(0, len(whole)))
    more = data.draw(st.binary(max_size=3))
    changed = whole[:at] + more + whole[at + data.draw(st.integers(0, 3)) :]
    file.write_bytes(changed)
    try:
        if changed == whole:
            made.opened()
        else:
            with pytest.raises(SutSpecInvalid):
                made.opened()
    finally:
        file.write_bytes(whole)


@LAW
@given(st.dictionaries(st.text(max_size=8), VALUES, max_size=5))
def test_any_output_comes_back_byte_for_byte(output: dict[str, Any]) -> None:
    text = canonical_json(output).decode()
    trial = RecordedTrial(
        task_class=TASK_CLASS,
        case_id="one",
        trial=0,
        input_digest="0" * 64,
        case_digest="1" * 64,
        output=text,
        cost_usd=None,
        wall_clock_ms=0,
    )
    digest, raw = trial_bytes(trial)

    assert read_trial(raw, digest) == trial


def test_a_copy_replays_each_output_as_it_was_recorded(made: RecordedPlace, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(made.recording, tmp_path / "copy"))
    replay = made.opened(recording=copy)
    answer = asyncio.run(replay.ask(SutCase("unordered", TASK_CLASS, "", 1), 1.0))

    assert isinstance(answer, SutAnswer)
    assert answer.output.decode() == made.found().trial("unordered", 1).output
