"""What the harness says to a program below it arrives as it was said, however it is read."""

import os
import socket

from codegenie.eval.system.protocol import Control


def test_a_request_that_is_read_together_with_an_older_message_keeps_its_descriptors() -> None:
    ours, theirs = socket.socketpair()
    control = Control(theirs.detach())
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
