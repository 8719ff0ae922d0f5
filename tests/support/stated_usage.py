"""What an agent states in an output that is there as a whole."""

from codegenie.eval.suts.agent_output import StatedUsage, UsageReader
from codegenie.eval.suts.agent_spec.records import OutputTable


def read_usage(output: OutputTable, stdout: bytes, file: bytes | None = None) -> StatedUsage:
    """Read a whole standard output, or the file that an agent left (None if it left none)."""
    reader = UsageReader(output)
    reader.feed(stdout)
    return reader.usage(file)
