"""What a hostile agent got away with, by row and part: the word of the harness and of witnesses on the host.

Usage: python -m tests.hostile.engine.loot ROOM CLASS NETWORK

Has the agent measured, and writes `found.json` into the room.
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from codegenie.eval.broker.records import Ledger
from codegenie.eval.suts.agent_spec.records import Prices
from codegenie.eval.suts.boxed.account import cost_of
from tests.hostile.engine.agent_rows import read_agent_rows
from tests.hostile.engine.robbery import (
    ENTRIES,
    HONEST,
    MAX_REQUESTS,
    MIB,
    PRICES,
    STATED,
    UNCHANGED,
    WORKSPACE_BYTES,
    Robbery,
    robbery,
)
from tests.support.fake_model import CACHED, INPUT, OUTPUT

_BY_BAIT = {
    "tcp-connect": "tcp",
    "udp-send": "udp",
    "unix-socket": "path",
    "abstract-socket": "abstract",
    "unix-mailbox": "mailbox",
}
_LEFT_ON_THE_HOST = {"tmp-file": "file", "shared-memory-file": "file", "system-v-memory": "segment"}
_TOKENS_OF = (
    "sut-reads-answers",
    "sut-reads-git-history",
    "sut-reads-shipped-bench",
    "sut-steals-environment",
)
_ENDED = "ended: it used more"
_MOST_KEPT = 6 * MIB
_MOST_MEMORY = 512 * MIB
_ASKED_FILES = 50
# The last file of a full workspace may be there without its content.
_MORE = 1.25
Parts = set[str]


def _all_that_was_kept(made: Robbery) -> bytes:
    """Return everything that the run wrote, and its report."""
    places = [made.desk / "runs", made.desk / "cache"]
    files = [path for place in places for path in sorted(place.rglob("*")) if path.is_file()]
    return b"\n".join([json.dumps(made.report).encode(), *(path.read_bytes() for path in files)])


def _taken(row: str, made: Robbery, kept: bytes) -> Parts:
    """Return the tokens of a row that came back. The agent prints them as digits, the harness never does."""
    return {part for part, token in made.tokens[row].items() if token.encode().hex().encode() in kept}


def _called(made: Robbery, _kept: bytes) -> Parts:
    heard = {part for name, part in _BY_BAIT.items() if made.laid.witnesses[name]()}
    return heard | made.listeners.heard()


def _seen_by_the_provider(made: Robbery, _kept: bytes) -> Parts:
    bodies = b"\n".join(seen.body for seen in made.fake.seen)
    return {
        part for part in read_agent_rows()["sut-abuses-broker"].parts if f"abuse:{part}".encode() in bodies
    }


def _left(made: Robbery, kept: bytes) -> Parts:
    word = made.laid.knock
    said = {
        part
        for part in read_agent_rows()["sut-leaves-word"].parts
        if f"{part}:{word}".encode().hex().encode() in kept
    }
    return said | {part for name, part in _LEFT_ON_THE_HOST.items() if made.laid.witnesses[name]()}


def _edited(made: Robbery, _kept: bytes) -> Parts:
    found = {part for part, path in made.edited.items() if _text(path) != UNCHANGED}
    files, order, heard = made.victim.limits
    changed = {"limits": files == _ASKED_FILES, "order": order != 0, "signal": bool(heard)}
    return found | {part for part, is_so in changed.items() if is_so}


def _text(path: Path) -> str | None:
    return path.read_text(encoding="ascii") if path.exists() else None


def _outlived(made: Robbery, _kept: bytes) -> Parts:
    return set(made.left_running())


def _filled(made: Robbery, _kept: bytes) -> Parts:
    trials = made.trials()
    ended = {name for name, trial in trials.items() if _ENDED in json.dumps(trial["answer"])}
    too_much = {
        "disk": _entries(made, "fills-disk") * MIB > _MORE * WORKSPACE_BYTES and "fills-disk" not in ended,
        "inodes": _entries(made, "fills-inodes") > _MORE * ENTRIES and "fills-inodes" not in ended,
        "hidden": _entries(made, "fills-hidden") * MIB > _MORE * WORKSPACE_BYTES
        and "fills-hidden" not in ended,
        "memory": "fills-memory" not in ended,
        "blinded": "blinds-watch" not in ended,
        "segments": not trials["fills-segments"]["answer"]["failure_modes"],
        "nameless": not trials["fills-nameless"]["answer"]["failure_modes"],
        "stdout": made.most_memory > _MOST_MEMORY
        or len(made.artifact(trials["floods-stdout"], "sut_stdout")) > _MOST_KEPT,
    }
    return {part for part, is_so in too_much.items() if is_so}


def _entries(made: Robbery, case: str) -> int:
    """Return how many entries the harness collected; those of the one case are of 1 MiB each."""
    listing = made.artifact(made.trials()[case], "collected").decode().splitlines()[0]
    return sum(int(part.split()[0]) for part in listing.split(", "))


def _bitten(made: Robbery, _kept: bytes) -> Parts:
    return {"marker"} if made.marker.exists() else set()


def _asked_again(made: Robbery, _kept: bytes) -> Parts:
    trials = made.trials()
    return {name for name in read_agent_rows()["sut-rerolls"].cases if len(trials[name]["attempts"]) > 1}


def _spent(made: Robbery, _kept: bytes) -> Parts:
    """Return where the record does not say what one request cost, and whether too many were sent."""
    one = Ledger(requests=1, successes=1, input_tokens=INPUT, cached_tokens=CACHED, output_tokens=OUTPUT)
    cost = cost_of(one, Prices.model_validate(PRICES))
    trials = made.trials()
    lies = {name for name in STATED if _stated_cost(trials[name]) not in {(cost, "broker"), (None, None)}}
    flood = sum(b'"flood"' in seen.body for seen in made.fake.seen)
    return lies | ({"floods-requests"} if flood > MAX_REQUESTS else set())


def _stated_cost(trial: dict[str, Any]) -> tuple[float | None, str | None]:
    return trial["attempts"][0].get("cost_usd"), trial.get("cost_source")


def _key_taken(made: Robbery, kept: bytes) -> Parts:
    forms = (made.key.encode(), made.key.encode().hex().encode(), made.key[::-1].encode())
    return {"key"} if any(form in kept for form in forms) else set()


WITNESSES: dict[str, Callable[[Robbery, bytes], Parts]] = {
    "sut-steals-credential": _key_taken,
    "sut-calls-out": _called,
    "sut-abuses-broker": _seen_by_the_provider,
    "sut-leaves-word": _left,
    "sut-edits": _edited,
    "sut-outlives": _outlived,
    "sut-fills": _filled,
    "sut-leaves-traps": _bitten,
    "sut-rerolls": _asked_again,
    "sut-spends": _spent,
    **{row: partial(_taken, row) for row in _TOKENS_OF},
}


def found_in(made: Robbery) -> dict[str, Any]:
    """Return the parts that succeeded, by row, and what shows that the run itself was in order."""
    kept = _all_that_was_kept(made)
    trials = made.trials()
    scores = {name: score["score"] for name, score in made.report["per_case"]}
    return {
        "reached": {name: sorted(witness(made, kept)) for name, witness in WITNESSES.items()},
        "absent": made.listeners.absent,
        "honest": scores[HONEST],
        "planned": sorted(scores) == sorted(trials),
        "boundary": made.report["sut_boundary"],
        "ends": {name: _end(made, trial) for name, trial in trials.items()},
        "provider_saw_the_key": any(made.key in json.dumps(seen.headers) for seen in made.fake.seen),
        "memory": made.most_memory,
    }


def _end(made: Robbery, trial: dict[str, Any]) -> str:
    """Return how a case ended: the attacker came to its end, or the failure that it met."""
    modes = [mode for mode in trial["answer"]["failure_modes"] if mode["code"].startswith("sut.")]
    if modes:
        return f"{modes[0]['code']}: {modes[0]['detail']}"
    return "whole" if made.artifact(trial, "sut_stdout").endswith(b"came to its end\n") else "cut"


def main(room: Path, isolation: str, network: str) -> None:
    """Play, and write down what was reached."""
    room.chmod(0o755)
    with robbery(room, isolation, network) as made:
        found = found_in(made)
    (room / "found.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
