"""The output of the fence: one finding for each thing that is wrong, and the notes of one task class."""

from collections import Counter
from dataclasses import dataclass

from codegenie.eval.bench.grammar import Problem, pycache_hint
from codegenie.eval.fence.rules import RULES, Level
from codegenie.eval.limits import LIMITS
from codegenie.eval.sanitising import one_line, printable
from codegenie.eval.system.files import UnsafeTree
from codegenie.eval.wording import counted

_MESSAGE_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: which rule, where, and what to do. All its texts are printable."""

    rule: str
    severity: Level
    path: str
    line: int | None
    column: int | None
    message: str
    fix: str

    def place(self) -> str:
        """Return the place in the usual form `path:line:column`."""
        return ":".join([self.path, *(str(part) for part in (self.line, self.column) if part is not None)])


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in a file of a task class; the path is relative to the class."""

    path: str
    line: int | None = None
    column: int | None = None


def shown_path(path: str) -> str:
    """Make a path printable. A line that begins with it must not be a command for a CI service."""
    text = printable(path)
    return f"./{text}" if text.lstrip().startswith((":", "#", "-")) else text


def shown_name(name: str) -> str:
    """Return the name of an entry as the directory walk shows it: unusual names are quoted and escaped."""
    return name if name.isascii() and name.isprintable() else ascii(name)


class Notes:
    """Collects the findings of one task class. A cap per rule keeps one rule from hiding the others."""

    def __init__(self, shown: str) -> None:
        self._shown = shown
        self._count: Counter[str] = Counter()
        self._findings: list[Finding] = []

    def add(self, rule_id: str, spot: Spot | str, message: str, fix: str | None = None) -> None:
        """Note one finding. Beyond the cap of its rule it is only counted."""
        self._count[rule_id] += 1
        if self._count[rule_id] > LIMITS.fence_findings_per_rule:
            return
        place = Spot(spot) if isinstance(spot, str) else spot
        self._findings.append(self._finding(rule_id, place, message, fix))

    def _finding(self, rule_id: str, spot: Spot, message: str, fix: str | None) -> Finding:
        rule = RULES[rule_id]
        path = "/".join(filter(None, (self._shown, spot.path)))
        return Finding(
            rule=rule_id,
            severity=rule.severity,
            path=shown_path(path),
            line=spot.line,
            column=spot.column,
            message=one_line(message, _MESSAGE_CHARACTERS),
            fix=one_line(fix or rule.do, _MESSAGE_CHARACTERS),
        )

    def add_problem(self, rule_id: str, problem: Problem, folder: str = "") -> None:
        """Note a problem that a parser of bench files found."""
        path = "/".join(filter(None, (folder, problem.file)))
        self.add(rule_id, Spot(path, problem.line), problem.message, problem.hint)

    def add_unsafe(self, unsafe: UnsafeTree, folder: str, rule_id: str = "F003") -> None:
        """Note an entry that is unsafe to open."""
        path = "/".join(filter(None, (folder, unsafe.path.rstrip("/"))))
        message = f"{unsafe.path or folder or 'the directory'} {unsafe.problem}"
        self.add(rule_id, path, message, pycache_hint(unsafe.path))

    def total(self) -> int:
        """Return the number of findings so far, including those that were only counted."""
        return self._count.total()

    def findings(self) -> tuple[Finding, ...]:
        """Return the findings in order of place. A rule over its cap adds a finding that counts the rest."""
        most = LIMITS.fence_findings_per_rule
        listed = sorted(self._findings, key=lambda one: (one.path, one.line or 0, one.column or 0, one.rule))
        more = [
            self._finding(
                rule_id, Spot(""), f"not listed: {counted(count - most, 'more finding')} of this rule", None
            )
            for rule_id, count in sorted(self._count.items())
            if count > most
        ]
        return (*listed, *more)
