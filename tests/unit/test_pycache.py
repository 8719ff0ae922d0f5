"""What Python leaves in a bench is refused by loader and fence with a word on where it comes from."""

from pathlib import Path

import pytest

from codegenie.eval.bench.loading import load_cases, load_task_class
from codegenie.eval.errors import EvalError
from codegenie.eval.fence import inspect_paths
from tests.support.fence import found_after
from tests.support.stub_benches import CASE, NAME, Edit, copy_stub, digested

WHENCE = "Python makes __pycache__ when it imports or compiles the files beside it: remove the directory"
PLACES = {
    "beside the rubric": "__pycache__/rubric.cpython-311.pyc",
    "in rubric_lib": "rubric_lib/__pycache__/x.cpython-311.pyc",
    "among the cases": "cases/__pycache__/x.cpython-311.pyc",
    "in a case": f"cases/{CASE}/__pycache__/x.cpython-311.pyc",
    "in the input of a case": f"cases/{CASE}/input/pkg/__pycache__/x.cpython-311.pyc",
}


def left_by_python(place: str) -> Edit:
    def leave(bench: Path) -> None:
        (bench / place).parent.mkdir(parents=True, exist_ok=True)
        (bench / place).write_bytes(b"\xa7\r\r\n" + b"\0" * 12)

    return leave


@pytest.mark.parametrize("name", PLACES)
def test_the_loader_says_where_it_comes_from_and_what_to_do(name: str, tmp_path: Path) -> None:
    left_by_python(PLACES[name])(copy_stub(tmp_path))

    with pytest.raises(EvalError) as refused:
        load_cases(load_task_class(NAME, bench_root=tmp_path), lambda _case_id: True)

    assert (refused.value.hint or "").startswith(WHENCE)
    assert "PYTHONDONTWRITEBYTECODE=1" in (refused.value.hint or "")


@pytest.mark.parametrize("name", PLACES)
def test_the_fence_says_it_too(name: str, tmp_path: Path) -> None:
    findings = found_after(tmp_path, left_by_python(PLACES[name]))

    assert [one for one in findings if one.fix.startswith(WHENCE)], findings


def test_the_fence_says_it_of_one_that_a_digest_covers(tmp_path: Path) -> None:
    (finding,) = found_after(tmp_path, digested(left_by_python(PLACES["in the input of a case"])))

    assert (finding.rule, finding.fix.startswith(WHENCE)) == ("F005", True)


def test_the_fence_says_it_of_one_among_the_task_classes(tmp_path: Path) -> None:
    copy_stub(tmp_path / "bench")
    (tmp_path / "bench" / "__pycache__").mkdir()

    (finding,) = inspect_paths([tmp_path / "bench"]).findings

    assert (finding.rule, finding.fix.startswith(WHENCE)) == ("F004", True)


def test_what_else_does_not_belong_there_is_not_blamed_on_python(tmp_path: Path) -> None:
    (finding,) = found_after(tmp_path, left_by_python("more/x.txt"))

    assert (finding.rule, WHENCE in finding.fix) == ("F002", False)
