"""The reference: the simplest program for the task. It runs a scorer once per case and does nothing else.

    python reference.py CASES_DIRECTORY SCORER CONCURRENCY

No copy, no digest, no deadline, no limit, no clean-up of what a scorer leaves behind.
"""

import asyncio
import json
import os
import sys

INTERPRETER = os.path.realpath(sys.executable)


async def score(case: os.DirEntry[str], scorer: str, slots: asyncio.Semaphore) -> float:
    """Score one case in a process of its own: JSON in, JSON out."""
    request = {
        "case": {"case_id": case.name},
        "input_dir": f"{case.path}/input",
        "expected_dir": f"{case.path}/expected",
        "harness_output": {},
    }
    async with slots:
        child = await asyncio.create_subprocess_exec(
            *(INTERPRETER, "-I", "-S", scorer), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        answer, _ = await child.communicate(json.dumps(request).encode())
    return float(json.loads(answer)["score"])


async def main(directory: str, scorer: str, concurrency: int) -> None:
    """Score every case, a task for each, and print how many there were."""
    slots = asyncio.Semaphore(concurrency)
    cases = [entry for entry in os.scandir(directory) if entry.is_dir()]
    scores = await asyncio.gather(*(score(case, scorer, slots) for case in cases))
    print(json.dumps({"cases": len(scores), "mean": sum(scores) / len(scores)}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
