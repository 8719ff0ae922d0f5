"""The findings of `doctor` as lines of text: the classes first, then the machine, then what to do."""

from collections.abc import Iterator, Mapping, Sequence

from codegenie.eval.isolation_proof import REQUIRED_PROBES, BoxFinding, ClassFinding, strongest
from codegenie.eval.wording import counted

_NOTHING = "nothing: a run ends with exit code 4 unless --isolation names a class"


def render_doctor(
    findings: Sequence[ClassFinding], machine: Mapping[str, object], boxes: Sequence[BoxFinding] = ()
) -> list[str]:
    """Return the table, the probes, the boxes of agents, the machine and the remedies."""
    lines = [f"{'class':12} result"]
    lines += [f"{found.isolation_class:12} {_result(found)}" for found in findings]
    lines += ["", f"auto takes   {strongest(findings) or _NOTHING}", ""]
    lines += _probes(findings)
    lines += _boxes(boxes)
    lines += [f"{name:38} {_shown(value)}" for name, value in machine.items()]
    for found in findings:
        lines += _remedies(found, found.isolation_class)
    for box in boxes:
        lines += _remedies(box, f"boxes of {box.isolation_class}")
    return lines


def render_room(at_once: Mapping[str, int | None]) -> list[str]:
    """Return how many agents can run at once by each thing that they need, and how to make room for more."""
    lines = ["", "agents at once"]
    for name, (thing, more) in _ROOM.items():
        fits = at_once[name]
        lines.append(f"{thing:12} {'no limit' if fits is None else f'{fits}; for more, {more}'}")
    return lines


_ROOM = {
    "by_processes": ("processes", "raise the limit with `ulimit -u`, or end other programs of this user"),
    "by_open_files": ("open files", "raise the limit with `ulimit -n`"),
    "by_memory": ("memory", "lower memory_total_bytes in sut.toml; no run is refused for memory"),
}


def _boxes(boxes: Sequence[BoxFinding]) -> Iterator[str]:
    """Yield one row for each class of boxes: what the thief found."""
    if not boxes:
        return
    yield f"{'boxes':12} result"
    for found in boxes:
        result = f"not proved: {found.why_not}"
        if found.proof is not None:
            result = f"proved: {counted(len(found.proof.probes), 'probe')} of a thief blocked"
        yield f"{found.isolation_class:12} {result}"
    yield ""


def _result(found: ClassFinding) -> str:
    if found.proof is None:
        return f"not proved: {found.why_not}"
    required = len(REQUIRED_PROBES[found.isolation_class])
    if not required:
        return "needs no proof: it has limits and a private directory, and no confinement"
    return f"proved: {required} probes blocked"


def _probes(findings: Sequence[ClassFinding]) -> Iterator[str]:
    """Yield one row for each probe, with its result in each class that was proved by probes."""
    tried = [found.proof for found in findings if found.proof is not None and found.proof.probes]
    if not tried:
        return
    results = [{probe.name: probe.blocked for probe in proof.probes} for proof in tried]
    yield f"{'probe':38} {' '.join(f'{proof.isolation_class:12}' for proof in tried)}".rstrip()
    for name in sorted(set().union(*results)):
        cells = [_WORDS[of_class.get(name)] for of_class in results]
        yield f"{name:38} {' '.join(f'{cell:12}' for cell in cells)}".rstrip()
    yield ""


_WORDS = {True: "blocked", False: "open", None: "-"}


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _remedies(found: ClassFinding | BoxFinding, name: str) -> list[str]:
    if found.proof is not None:
        return []
    return ["", f"for {name}:", *(f"  {remedy}" for remedy in found.remedies)]
