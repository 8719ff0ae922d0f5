"""Looks an agent up before the first case: its program, what its box shows, its version and its name."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from codegenie.eval.boxes.launching import Boxes
from codegenie.eval.boxes.request import AgentStart, BoxLimits, BoxRequest, BoxView
from codegenie.eval.broker.records import BrokerRules
from codegenie.eval.errors import BoxFailed, ExecFailed, SutSpecInvalid
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import SutIdentity, SutNetwork
from codegenie.eval.sanitising import Redactor
from codegenie.eval.suts.agent_spec.agent_files import handed_over_files, packed_agent_files, program_digest
from codegenie.eval.suts.agent_spec.environment import home_of, passed_variables, search_path
from codegenie.eval.suts.agent_spec.filling import check_model, filled_rules
from codegenie.eval.suts.agent_spec.identity import IdentityParts, agent_digest, version_line
from codegenie.eval.suts.agent_spec.needs import (
    Needs,
    Places,
    find_needs,
    missing_in_the_box,
    readable_paths,
    refuse_secret_paths,
    unseen_arguments,
)
from codegenie.eval.suts.boxed.attempt import AgentSetup, moved
from codegenie.eval.suts.boxed.request import AgentRequest
from codegenie.eval.suts.boxed.secret_paths import shipped_answers
from codegenie.eval.suts.fingerprints import variable_fingerprint
from codegenie.eval.suts.identity import SUT_ENV, SUT_MODEL
from codegenie.eval.system.child_files import read_head, stream_file
from codegenie.eval.system.packed_tree import Packer

_VERSION_SECONDS = 20.0
_SAID_BYTES = 1024 * 1024
_ANY_MODEL = "*"


@dataclass(frozen=True, slots=True)
class Found:
    """An agent that was looked up: what is the same in every attempt, and what identifies it."""

    setup: AgentSetup
    needs: Needs
    files_digest: str


@contextmanager
def looked_up(request: AgentRequest, host: Mapping[str, str]) -> Iterator[Found]:
    """Look an agent up and pack its files. Raises SutSpecInvalid if any part of it cannot be used."""
    spec = request.spec
    check_model(spec, request.model)
    network = network_of(request)
    home = home_of(host)
    places = Places((str(request.directory), str(request.called_in)), host.get("PATH", ""), home)
    needs = find_needs(spec.command[0], places, spec.files)
    shown = (*needs.shown, *readable_paths(spec, home))
    refuse_secret_paths(shown, request.secrets)
    unseen = unseen_arguments(spec.command, str(request.called_in), shown)
    if unseen:
        raise SutSpecInvalid(
            f"the command names {unseen[0]!a}, which the box does not show",
            hint="write a sut.toml that lists it in files, and name it as /agent/… in command",
        )
    limits = spec.limits
    view = BoxView(
        readable=shown,
        # A harness may be installed beside the agent, with the answers of its benches.
        secrets=tuple(sorted({*request.secrets, *shipped_answers(shown)})),
        network=network,
        limits=BoxLimits(
            processes=limits.processes,
            process_memory_bytes=limits.process_memory_bytes,
            memory_total_bytes=limits.memory_total_bytes,
            workspace_bytes=limits.workspace_bytes,
            workspace_entries=limits.workspace_entries,
            file_bytes=limits.file_bytes,
        ),
    )
    with packed_agent_files(spec, request.directory) as files:
        setup = AgentSetup(
            spec=spec,
            view=view,
            program=needs.program,
            model=request.model,
            agent_files=files.descriptor if spec.files else None,
            passed=passed_variables(spec, network, request.pass_names, host),
            handed_over=handed_over_files(spec, home),
            host=host,
        )
        yield Found(setup, needs, files.digest)


def network_of(request: AgentRequest) -> SutNetwork:
    """Return what the agent can reach. Raises SutSpecInvalid for a broker without its table."""
    network = request.network or request.spec.network.mode
    if network == "broker" and request.spec.broker is None:
        raise SutSpecInvalid(
            "--sut-network broker: the agent has no [broker]", hint="write a sut.toml with [broker]"
        )
    return network


def broker_rules(request: AgentRequest) -> BrokerRules:
    """Return the rules of the agent's broker. Raises SutSpecInvalid if they cannot be kept."""
    broker = request.spec.broker
    if broker is None:
        raise RuntimeError("an agent without [broker] has no rules")
    # The name of the model may stand in a path. Then the rule about models decides which one may.
    model = _ANY_MODEL if broker.models else request.model
    try:
        return BrokerRules(
            upstream=broker.upstream,
            paths=filled_rules(broker.paths, model),
            credential_header=broker.credential.header,
            credential_format=broker.credential.format,
            models=filled_rules(broker.models, request.model),
            server_tools=broker.server_tools,
            max_requests=broker.max_requests,
        )
    except ValueError as error:
        raise SutSpecInvalid(f"broker: {error}", where=request.named) from None


def identity_of(request: AgentRequest, found: Found, version: str | None) -> SutIdentity:
    """Return the identity: what the user named, and a digest of all that the harness can see of it."""
    setup = found.setup
    prints = {
        name: variable_fingerprint(request.salt, name, value) for name, value in sorted(setup.passed.items())
    }
    parts = IdentityParts(
        files_digest=found.files_digest,
        program_digest=program_digest(found.needs.executed),
        version_line=version,
        model=request.model,
        network=setup.view.network,
        preset_revision=request.preset_revision,
        passed=prints,
    )
    return SutIdentity(
        spec=name_of(request, prints), version=request.version, digest=agent_digest(request.spec, parts)
    )


def name_of(request: AgentRequest, prints: Mapping[str, str]) -> str:
    """Return the name of an agent in a log: two models, or two values of a variable, are two agents."""
    model = "" if request.model is None else f"{SUT_MODEL}{request.model}"
    name = "".join([request.named, model, *(f"{SUT_ENV}{each}:{value}" for each, value in prints.items())])
    if len(name) > LIMITS.text_characters:
        raise SutSpecInvalid(
            f"the name of the agent has {len(name)} characters, and a record takes {LIMITS.text_characters}",
            hint="write a sut.toml, and pass fewer variables",
        )
    return name


async def version_of(boxes: Boxes, found: Found, redactor: Redactor) -> str | None:
    """Ask the agent for its version, in a box without network; None if it has no version command.

    Raises SutSpecInvalid if the program cannot be started in the box, or does not say its version.
    """
    setup = found.setup
    command = setup.spec.version_command
    # Without a version command the start is tried in another way, so that a missing file is found now.
    argv: tuple[str, ...] = ("/bin/sh", "-c", '[ -x "$1" ]', "sh", setup.program)
    if command:
        argv = (setup.program if command[0] == setup.spec.command[0] else command[0], *command[1:])
    request = BoxRequest(
        view=replace(setup.view, network="none"), workspace=-1, agent_files=setup.agent_files, home={}
    )
    try:
        code, out, err = await said_in_box(
            boxes, request, argv, search_path(setup.host.get("PATH", ""), setup.view.readable)
        )
    except ExecFailed as error:
        raise missing_in_the_box(error.path, home_of(setup.host)) from None
    if not command:
        if code:
            raise missing_in_the_box(setup.program, home_of(setup.host))
        return None
    line = version_line(out or err)
    if code or line is None:
        said = redactor.detail(err.decode("utf-8", "replace")) or "it printed nothing"
        raise SutSpecInvalid(
            f"`{' '.join(command)}` failed in the box: {said}",
            hint="add what it needs to readable, or leave out version_command",
        )
    return redactor.clean(line)


async def said_in_box(
    boxes: Boxes, request: BoxRequest, argv: tuple[str, ...], path: str
) -> tuple[int | None, bytes, bytes]:
    """Run a program in a box with an empty workspace; return its exit code and what it printed."""
    with stream_file() as empty, stream_file() as stdin, stream_file() as out, stream_file() as err:
        Packer(empty).close()
        async with await boxes.open(replace(request, workspace=empty)) as box:
            environment = {
                "PATH": path,
                "HOME": box.home_path,
                "TMPDIR": box.tmp_path,
                "TERM": "dumb",
                "CI": "1",
            }
            argv = tuple(moved(each, box.agent_path) for each in argv)
            start = AgentStart(argv, environment, (stdin, out, err), _VERSION_SECONDS, 1.0)
            end = await box.run(start)
        if end.lost:
            raise BoxFailed("the first process of a box was lost")
        code = end.exit_code if end.exit_code is not None else os.EX_SOFTWARE
        return code, read_head(out, _SAID_BYTES)[0], read_head(err, _SAID_BYTES)[0]
