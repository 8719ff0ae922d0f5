"""Fills the placeholders of a sut.toml for one case: the arguments, the input, the variables, the home."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from codegenie.eval.decoding import decode_text
from codegenie.eval.errors import DecodingRefused, SutSpecInvalid
from codegenie.eval.suts.agent_spec.placeholders import INPUT_FILES, holds, substituted
from codegenie.eval.suts.agent_spec.records import AgentSpec

_INPUT_BYTES = 256 * 1024
# The kernel takes 128 KiB in one argument, its end included, and 2 MiB in all of them with the environment.
_ARGUMENT_BYTES = 128 * 1024 - 1
_ALL_ARGUMENT_BYTES = 1024 * 1024
_MOST_INPUT_FILES = 1000
# A model is a part of arguments and of addresses, so it neither begins like an option nor holds a space.
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}")


@dataclass(frozen=True, slots=True)
class CaseTexts:
    """What the texts of a sut.toml may hold of a case. `read` returns None for a file that is not there."""

    case_id: str
    task_class: str
    trial: int
    input_names: tuple[str, ...]
    read: Callable[[str], bytes | None]


@dataclass(frozen=True, slots=True)
class BoxPlaces:
    """The places that an agent sees: its home, and the address of the broker if there is one."""

    home: str
    broker: str | None = None


@dataclass(frozen=True, slots=True)
class Filled:
    """The texts of a sut.toml for one case. The first argument is still the name of the program."""

    argv: tuple[str, ...]
    stdin: bytes
    variables: Mapping[str, str]
    home: Mapping[str, bytes]


def wants_model(spec: AgentSpec) -> bool:
    """Say whether a model has to be named with --sut-model."""
    broker = spec.broker
    texts = (*spec.command, spec.prompt, *spec.environment.assigned.values())
    texts += tuple(file.text or "" for file in spec.home.values())
    texts += (*broker.paths, *broker.models) if broker else ()
    return holds(texts, "model")


def check_model(spec: AgentSpec, model: str | None) -> None:
    """Raise SutSpecInvalid if a model is missing, is not asked for, or does not have the form of a name."""
    wanted = wants_model(spec)
    if model is None and wanted:
        raise SutSpecInvalid(f"the agent {spec.name} needs a model", hint="name it with --sut-model NAME")
    if model is not None and not wanted:
        raise SutSpecInvalid(
            f"the agent {spec.name} takes no model",
            hint="leave out --sut-model, or put {model} into its file",
        )
    if model is not None and not _MODEL.fullmatch(model):
        raise SutSpecInvalid(
            f"{model[:80]!a} is not the name of a model", hint="use letters, digits and . _ : / @ + -"
        )


def filled_rules(texts: tuple[str, ...], model: str | None) -> tuple[str, ...]:
    """Fill the paths or the models of a broker's rules."""
    return tuple(substituted(text, lambda _: model or "") for text in texts)


def filled(spec: AgentSpec, case: CaseTexts, model: str | None, places: BoxPlaces) -> Filled:
    """Fill all texts for one case. Raises SutSpecInvalid if the case lacks a file that the prompt names."""
    check_model(spec, model)
    value = _Values(case, model or "", places)
    prompt = substituted(spec.prompt, value)
    arguments: list[str] = [spec.command[0]]
    for argument in spec.command[1:]:
        if argument == INPUT_FILES:
            arguments += _input_arguments(case)
        else:
            # In one pass: `value` is not asked for what stands in the prompt.
            arguments.append(substituted(argument, lambda name: prompt if name == "prompt" else value(name)))
    _check_arguments(arguments, case)
    variables = {name: substituted(text, value) for name, text in spec.environment.assigned.items()}
    if spec.broker is not None and places.broker is not None:
        variables |= {name: substituted(text, value) for name, text in spec.broker.url_env.items()}
    home = {
        name: substituted(file.text, value).encode()
        for name, file in spec.home.items()
        if file.text is not None
    }
    return Filled(tuple(arguments), prompt.encode() if spec.stdin == "prompt" else b"", variables, home)


@dataclass(frozen=True, slots=True)
class _Values:
    """Gives the text for a placeholder."""

    case: CaseTexts
    model: str
    places: BoxPlaces

    def __call__(self, name: str) -> str:
        if name.startswith("input:"):
            return _input_text(self.case, name.removeprefix("input:"))
        if name == "broker" and self.places.broker is None:
            raise SutSpecInvalid(
                "{broker} is used, and this run has no broker", hint="use --sut-network broker or host"
            )
        return {
            "case_id": self.case.case_id,
            "task_class": self.case.task_class,
            "trial": str(self.case.trial),
            "model": self.model,
            "home": self.places.home,
            "broker": self.places.broker or "",
        }[name]


def _input_text(case: CaseTexts, name: str) -> str:
    raw = case.read(name)
    if raw is None:
        raise SutSpecInvalid(
            f"the prompt names input/{name}, which the case does not have",
            where=f"case {case.case_id}",
            hint="name a file that every selected case has, or select other cases",
        )
    try:
        return decode_text(raw, _INPUT_BYTES)
    except DecodingRefused as refusal:
        raise SutSpecInvalid(
            f"input/{name} cannot stand in a prompt: {refusal.message}", where=f"case {case.case_id}"
        ) from None


def _input_arguments(case: CaseTexts) -> list[str]:
    if len(case.input_names) > _MOST_INPUT_FILES:
        raise SutSpecInvalid(
            f"the case has {len(case.input_names)} files, more than the {_MOST_INPUT_FILES} that"
            f" {INPUT_FILES} stands for",
            where=f"case {case.case_id}",
        )
    # The name of a file may begin like an option of the agent.
    return [f"./{name}" for name in sorted(case.input_names)]


def _check_arguments(arguments: list[str], case: CaseTexts) -> None:
    sizes = [len(argument.encode("utf-8", "surrogateescape")) for argument in arguments]
    problem = None
    if max(sizes) > _ARGUMENT_BYTES:
        problem = f"an argument has {max(sizes)} bytes, and the kernel takes {_ARGUMENT_BYTES}"
    elif sum(sizes) > _ALL_ARGUMENT_BYTES:
        problem = f"the arguments have {sum(sizes)} bytes, more than {_ALL_ARGUMENT_BYTES}"
    elif any("\0" in argument for argument in arguments):
        problem = "an argument holds a NUL character"
    if problem:
        raise SutSpecInvalid(
            problem, where=f"case {case.case_id}", hint='hand the prompt over with stdin = "prompt"'
        )
