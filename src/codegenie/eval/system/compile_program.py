"""Compiles the sources that it is given and runs none of them. This file is a program and is run by path.

A source can keep a compiler busy for minutes (one f-string of 900 KB took 100 s), use all memory, or overflow
the stack. In this program it ends only this process.
"""

import json
import resource
import sys
import warnings


def problem_of(source: bytes) -> dict[str, object] | None:
    """Return why a source does not compile, and on which line; None if it compiles."""
    try:
        # In comments, `compile` accepts bytes that the interpreter refuses in a file.
        source.decode("utf-8")
        compile(source, "source", "exec", dont_inherit=True)
    except UnicodeDecodeError as error:
        return {"line": source.count(b"\n", 0, error.start) + 1, "message": "is not UTF-8"}
    except SyntaxError as error:
        return {"line": error.lineno, "message": f"is not Python: {error.msg}"}
    except RecursionError:
        return {"line": None, "message": "is nested too deeply to be compiled"}
    except MemoryError:
        return {"line": None, "message": "is nested too deeply, or needs too much memory to be compiled"}
    except (ValueError, OverflowError, SystemError) as error:
        return {"line": None, "message": f"cannot be compiled: {error}"}
    return None


def main() -> None:
    """Read sources, whose sizes are on the first line, and print one line for each."""
    for name, most in json.loads(sys.argv[1]).items():
        hard = resource.getrlimit(getattr(resource, name))[1]
        # The harness itself may have a lower limit than this one.
        soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(getattr(resource, name), (soft, hard))
    # A warning would quote the source on standard error.
    warnings.simplefilter("ignore")
    for size in json.loads(sys.stdin.buffer.readline()):
        problem = problem_of(sys.stdin.buffer.read(size))
        sys.stdout.write(json.dumps(problem) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
