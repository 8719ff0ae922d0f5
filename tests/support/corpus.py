"""Every reader of bytes from outside, and what holds of anything that it takes.

`tests/laws/test_corpus.py` replays the files of `tests/fixtures/corpus/` through all of them, and
`scripts/fuzz.py` mutations of these files. A reader refuses with an error of our tree, or takes the bytes and
keeps its law; anything else is a fault of ours.
"""

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from blake3 import blake3

from codegenie.eval.bench.grammar.case_file import CaseHead, inspect_case
from codegenie.eval.bench.grammar.python_files import (
    inspect_breakdown_keys,
    inspect_registration,
    read_breakdown_keys,
    read_registration,
)
from codegenie.eval.bench.grammar.syntax_tree import check_reviewable
from codegenie.eval.bench.grammar.yaml_files import (
    digest_lines,
    inspect_digests,
    inspect_taxonomy,
    read_digests,
    read_taxonomy,
)
from codegenie.eval.canonical import canonical_json, spelled
from codegenie.eval.decoding import decode_json, decode_toml, decode_yaml, decode_yaml_with_lines
from codegenie.eval.errors import EvalError
from codegenie.eval.evidence import Answer, apply_block_rule
from codegenie.eval.gate.policy import read_policy
from codegenie.eval.limits import LIMITS
from codegenie.eval.log.chain import ChainVerifier, decode_head, decode_record
from codegenie.eval.log.journal import _lines as journal_lines
from codegenie.eval.log.records import record_pieces
from codegenie.eval.ports import RubricRun, SutAnswer
from codegenie.eval.recordings.records import RecordedTrial, index_bytes, read_index, read_trial
from codegenie.eval.sanitising import Redactor
from codegenie.eval.suts.agent_output import StatedUsage
from codegenie.eval.suts.agent_spec.reading import PRESETS, decoded_spec, preset
from codegenie.eval.suts.agent_spec.records import AgentSpec
from codegenie.eval.suts.result_reader import read_raised, read_result
from codegenie.eval.validation import judge
from tests.support.stated_usage import read_usage
from tests.unit.test_validation import RUN, task_class

CORPUS = Path(__file__).resolve().parents[1] / "fixtures" / "corpus"
LOG = Path(__file__).resolve().parents[1] / "fixtures" / "log-v1"
LIMIT = 1 << 20
TASK_CLASS = task_class()
REDACTOR = Redactor({"TOKEN": "canary-0123456789"})
CASE_ID = "case-1"
_YAML_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


@dataclass(frozen=True)
class Reader:
    """A function from bytes to a value, and the law that the two keep."""

    read: Callable[[bytes], Any]
    holds: Callable[[bytes, Any], bool]


def _json_law(raw: bytes, value: object) -> bool:
    # `repr` also tells 1, 1.0 and True apart.
    canonical = canonical_json(value)
    again = canonical_json(decode_json(canonical, 2 * LIMIT))
    return repr(value) == repr(json.loads(raw.decode())) and again == canonical


def _same_yaml(raw: bytes, value: object) -> bool:
    return repr(value) == repr(yaml.load(raw.decode(), Loader=_YAML_LOADER))  # noqa: S506 - strings only


def _digests_law(raw: bytes, digests: Mapping[str, str]) -> bool:
    written = "".join(f"{case_id}: blake3:{digest}\n" for case_id, digest in digests.items())
    lines = digest_lines(raw)
    return inspect_digests(raw).problems == () and (
        not digests or (read_digests(written.encode()) == digests and lines.keys() == digests.keys())
    )


def _judged(raw: bytes) -> Answer:
    return judge(_run_that_wrote(raw), TASK_CLASS, REDACTOR)


def _run_that_wrote(raw: bytes) -> RubricRun:
    return RubricRun(
        stdout=raw,
        stdout_truncated=False,
        stderr=raw[:200],
        exit_code=RUN.exit_code,
        signal=None,
        timed_out=False,
        leaked_processes=0,
    )


def _answer_law(_: bytes, answer: Answer) -> bool:
    apply_block_rule(answer, None, 0)
    again = Answer.model_validate_json(spelled(answer))
    return again == answer and b"canary-0123456789" not in spelled(answer)


def _result_law(_: bytes, result: object) -> bool:
    if not isinstance(result, SutAnswer):
        return True
    return canonical_json(decode_json(result.output, 2 * LIMIT)) == result.output


def _second_record(raw: bytes) -> object:
    """Read a record as the one that follows a real start."""
    verifier = ChainVerifier()
    verifier.check("00000000.json", (LOG / "00000000.json").read_bytes())
    return verifier.check("00000001.json", raw)


def _case(raw: bytes) -> object:
    head = CaseHead(raw, "0" * 64, "1" * 64)
    return inspect_case(head, TASK_CLASS.name, CASE_ID, {CASE_ID, "case-2"}).or_refuse()


def _journal_law(raw: bytes, lines: list[Any]) -> bool:
    ends = [line.end for line in lines]
    return ends == sorted(ends) and (not ends or ends[-1] <= len(raw))


def _spec_law(_: bytes, spec: AgentSpec) -> bool:
    return AgentSpec.model_validate_json(spelled(spec)) == spec


def _stated(raw: bytes) -> list[StatedUsage]:
    return [read_usage(preset(name).output, raw, raw) for name in PRESETS]


def _stated_law(_: bytes, stated: list[StatedUsage]) -> bool:
    return all(
        (one.cost_usd is None or 0 <= one.cost_usd <= LIMITS.cost_usd) and len(one.notes) <= 1
        for one in stated
    )


def _nothing(_: bytes, __: object) -> bool:
    return True


def _spelled_once(raw: bytes, record: Any) -> bool:  # noqa: ANN401 - any record of the log
    return b"".join(record_pieces(record)) == raw


READERS: Mapping[str, Reader] = {
    "json": Reader(lambda raw: decode_json(raw, LIMIT), _json_law),
    "json of few keys": Reader(lambda raw: decode_json(raw, LIMIT, values=64, keys=8), _json_law),
    "toml": Reader(decode_toml, lambda raw, value: repr(value) == repr(tomllib.loads(raw.decode()))),
    "yaml": Reader(decode_yaml, _same_yaml),
    "yaml with lines": Reader(decode_yaml_with_lines, lambda raw, pair: _same_yaml(raw, pair[0])),
    "yaml with numbers": Reader(
        lambda raw: decode_yaml(raw, numbers=True),
        lambda _, value: canonical_json(value) == canonical_json(json.loads(canonical_json(value))),
    ),
    "taxonomy": Reader(read_taxonomy, lambda raw, _: inspect_taxonomy(raw).problems == ()),
    "digests": Reader(read_digests, _digests_law),
    "policy": Reader(
        lambda raw: read_policy(raw, "trust-tiers.yaml"),
        lambda raw, policy: read_policy(raw, "elsewhere").digest == policy.digest,
    ),
    "case": Reader(_case, lambda _, case: case.case_id == CASE_ID),
    "registration": Reader(
        lambda raw: read_registration(raw, "dependency-pin"),
        lambda raw, _: inspect_registration(raw, "dependency-pin").problems == (),
    ),
    "breakdown keys": Reader(
        read_breakdown_keys,
        lambda raw, keys: inspect_breakdown_keys(raw).value == keys and len(keys) == len(set(keys)),
    ),
    "rubric source": Reader(lambda raw: check_reviewable("rubric.py", raw), _nothing),
    "rubric output": Reader(_judged, _answer_law),
    "file of an agent": Reader(lambda raw: decoded_spec(raw, "sut.toml"), _spec_law),
    "statement of an agent": Reader(_stated, _stated_law),
    "result of an agent": Reader(read_result, _result_law),
    "exception of an agent": Reader(lambda raw: read_raised(raw, REDACTOR), _nothing),
    "first record": Reader(lambda raw: ChainVerifier().check("00000000.json", raw), _spelled_once),
    "second record": Reader(_second_record, _spelled_once),
    "record": Reader(lambda raw: decode_record("00000000.json", raw), _spelled_once),
    "index of a recording": Reader(read_index, lambda raw, read: index_bytes(read[0]) == raw),
    "recorded trial": Reader(
        lambda raw: read_trial(raw, blake3(raw).hexdigest()),
        lambda _, trial: RecordedTrial.model_validate_json(spelled(trial)) == trial,
    ),
    "head": Reader(decode_head, lambda raw, link: link.encode() == raw),
    "journal": Reader(lambda raw: list(journal_lines(raw)), _journal_law),
}


def corpus_files(corpus: Path = CORPUS) -> list[Path]:
    """Return every file of the corpus, in order."""
    return sorted(path for path in corpus.rglob("*") if path.is_file())


def faults(raw: bytes, readers: Mapping[str, Reader] = READERS) -> list[str]:
    """Give the bytes to every reader; return what is neither a typed refusal nor a lawful value."""
    found = []
    for name, reader in readers.items():
        try:
            value = reader.read(raw)
            if not reader.holds(raw, value):
                found.append(f"{name}: takes it and breaks its law")
        except EvalError:
            continue
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
            found.append(f"{name}: {type(error).__name__}: {str(error)[:100]}")
    return found
