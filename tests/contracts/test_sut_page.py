"""The page on sut.toml has a row for every key, with its default, and for every placeholder and preset."""

import json
import re
from pathlib import Path

import pytest

from codegenie.eval.suts.agent_spec import placeholders, records
from codegenie.eval.suts.agent_spec.checks import OWN_VARIABLES
from codegenie.eval.suts.agent_spec.reading import PRESETS, decoded_spec, preset
from codegenie.eval.suts.agent_spec.records import Table

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "sut-toml.md").read_text(encoding="utf-8")
SECTIONS: dict[str, type[Table]] = {
    "## The agent": records.AgentSpec,
    "## `[environment]`": records.EnvironmentTable,
    "## `[home]`": records.HomeFile,
    "## `[network]`": records.NetworkTable,
    "## `[broker]`": records.BrokerTable,
    "### `credential`": records.Credential,
    "### `prices`": records.Prices,
    "## `[limits]`": records.LimitsTable,
    "## `[workspace]`": records.WorkspaceTable,
    "## `[output]`": records.OutputTable,
}
TABLES = {"environment", "home", "network", "broker", "limits", "workspace", "output"}


def rows(heading: str) -> dict[str, list[str]]:
    _, found, rest = PAGE.partition(f"\n{heading}\n")
    assert found, f"there is no section {heading!r}"
    body = re.split(r"\n##", rest, maxsplit=1)[0]
    cells = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in re.findall(r"^\| `.*\|$", body, re.MULTILINE)
    ]
    return {row[0].strip(" `|"): row[1:] for row in cells}


def defaults(table: type[Table], left_out: set[str]) -> dict[str, str]:
    """Return every key of a table with its default as the page writes it."""
    found = {}
    for name, field in table.model_fields.items():
        key = field.alias or name
        if key in left_out:
            continue
        if field.is_required():
            found[key] = "required"
        else:
            value = field.get_default(call_default_factory=True)
            plain = list(value) if isinstance(value, tuple) else value
            found[key] = "none" if value is None else f"`{json.dumps(plain)}`"
    return found


@pytest.mark.parametrize("heading", SECTIONS)
def test_every_key_has_a_row_with_its_default_and_there_is_no_other(heading: str) -> None:
    left_out = TABLES if heading == "## The agent" else set()
    real = defaults(SECTIONS[heading], left_out)

    assert {key: cells[0] for key, cells in rows(heading).items()} == real
    assert all(len(cells) == 2 and cells[1] for cells in rows(heading).values())


def test_every_table_of_the_file_has_a_section() -> None:
    every = {one for one in vars(records).values() if isinstance(one, type) and issubclass(one, Table)}

    assert every - {Table} == set(SECTIONS.values())
    assert {heading.strip("#` []") for heading in SECTIONS if "[" in heading} == TABLES


def test_every_placeholder_has_a_row_with_the_places_that_know_it() -> None:
    places = {
        "command": placeholders.IN_COMMAND,
        "prompt": placeholders.IN_PROMPT,
        "set": placeholders.IN_ENVIRONMENT,
        "text": placeholders.IN_HOME_FILE,
        "url_env": placeholders.IN_BROKER_URL,
        "paths": placeholders.ONLY_MODEL,
        "models": placeholders.ONLY_MODEL,
        "file": {"home"},
    }
    said = {
        name.strip("{}").replace("NAME", ""): set(re.findall(r"`(\w+)`", cells[0]))
        for name, cells in rows("## Placeholders").items()
    }
    known = set().union(*places.values())

    assert said == {name: {place for place, allowed in places.items() if name in allowed} for name in known}


def test_every_preset_has_a_row_with_its_program_and_its_key() -> None:
    said = {name: [cell.strip("`") for cell in cells[:2]] for name, cells in rows("## Presets").items()}
    real = {}
    for name in PRESETS:
        spec = preset(name)
        assert spec.broker is not None
        real[name] = [spec.command[0], spec.broker.credential.env]

    assert said == real


def test_what_a_preset_is_said_to_state_is_what_its_file_reads() -> None:
    for name, cells in rows("## Presets").items():
        output = preset(name).output
        assert ("cost" in cells[2]) == (output.cost_usd is not None), name
        assert ("model" in cells[2]) == (output.model is not None), name
        assert output.input_tokens is not None
        assert output.output_tokens is not None


def test_the_example_of_the_page_is_a_valid_file() -> None:
    (example,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

    assert decoded_spec(example.encode(), "sut.toml").name == "my-agent"


def test_the_page_names_the_variables_that_a_file_cannot_set() -> None:
    said = " ".join(PAGE.split()).partition("This file cannot set ")[2].partition(" and names that begin")[0]

    assert set(re.findall(r"`(\w+)`", said)) == OWN_VARIABLES


def test_every_shipped_file_is_a_preset() -> None:
    directory = ROOT / "src" / "codegenie" / "eval" / "suts" / "presets"

    assert sorted(path.name for path in directory.iterdir()) == [f"{name}.toml" for name in PRESETS]
