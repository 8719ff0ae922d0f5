"""An agent that is a program, measured for gold until no reason of the gate speaks against it."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.agent_desk import FIXING, AgentDesk, agent_desk, edit_case
from tests.support.benches import TASK_CLASS
from tests.support.sampling import one_worker

pytestmark = one_worker(__name__)

UNITS = 5
"""As few as can certify 0.5."""
WALLS = ("sut_boundary", "sut_network")


@pytest.fixture(scope="module")
def desk() -> Iterator[AgentDesk]:
    with agent_desk([edit_case(f"case-{number}") for number in range(UNITS)]) as made:
        registration = made.directory / "bench" / TASK_CLASS / "registration.py"
        text = registration.read_text(encoding="utf-8")
        registration.write_text(text.replace('"bronze": 1', '"gold": 1'), encoding="utf-8")
        (made.directory / "trust-tiers.yaml").write_text("thresholds: {gold: 0.5}\n", encoding="utf-8")
        made.script(FIXING)
        yield made


def measured(desk: AgentDesk, *flags: str) -> dict[str, Any]:
    """Measure the agent, and return the verdict that the run ends with."""
    document = desk.document("run", TASK_CLASS, "--sut", "command:./agent.sh", "--quiet", *flags)
    verdict: dict[str, Any] = document["verdict"]
    return verdict


def test_an_agent_is_gold_when_it_was_measured_as_the_reasons_say(desk: AgentDesk) -> None:
    plain = measured(desk, "--sut-isolation", "subprocess")
    online = measured(desk, "--sut-isolation", "namespace", "--sut-network", "host")
    walled = measured(desk, "--sut-isolation", "namespace", "--sut-network", "none")

    met = [[each["code"] for each in verdict["reason_records"]] for verdict in (plain, online, walled)]
    assert met == [list(WALLS), ["sut_network"], []]
    assert [verdict["verdict"] for verdict in (plain, online, walled)] == ["insufficient"] * 2 + [
        "sufficient"
    ]
    assert (walled["sut_boundary"], walled["sut_network"]) == ("namespace", "none")
    assert "--sut-isolation namespace" in plain["reasons"][0]
    assert "--sut-network none or broker" in online["reasons"][0]

    asked = desk.ask("promote-verdict", TASK_CLASS, "--tier", "gold", "--run", "latest")
    assert (asked.returncode, asked.stdout.split()[:2]) == (0, ["gold", "sufficient"])
