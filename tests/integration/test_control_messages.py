"""What the harness says to a keeper or a zygote arrives as it was said, however it is read."""

import os
import socket
from collections.abc import Callable
from typing import Any

import pytest

from codegenie.eval.isolation.confinement import zygote
from tests.integration.forked import load_program


def keeper_control(descriptor: int) -> Any:  # noqa: ANN401 - a class of a program that nobody imports
    keeper = load_program("system/supervisor_program.py")
    vars(keeper)["_CONTROL"] = descriptor  # the program has it as its standard input
    return keeper.Control()


@pytest.mark.parametrize("control_of", [zygote.Control, keeper_control], ids=["zygote", "keeper"])
def test_a_request_that_is_read_together_with_an_older_word_keeps_its_descriptors(
    control_of: Callable[[int], Any],
) -> None:
    ours, theirs = socket.socketpair()
    control = control_of(theirs.detach())
    with open(os.devnull, "rb") as stream:
        ours.send(b'{"cancel": true}\n')
        socket.send_fds(ours, [b'{"seconds": 1}\n'], [stream.fileno()] * 3)
        ours.send(b'{"leave": true}\n')

    assert control.receive() == ({"cancel": True}, [])
    word, descriptors = control.receive()
    assert (word, len(descriptors)) == ({"seconds": 1}, 3)
    assert control.receive() == ({"leave": True}, [])
    for descriptor in descriptors:
        os.close(descriptor)
    ours.close()
    control._socket.close()  # noqa: SLF001 - nobody else does
