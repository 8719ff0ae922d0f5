"""Plays one attack in this process: python -m tests.hostile.engine.play SURFACE SCENARIO ROOM."""

import json
import sys
from pathlib import Path

import codegenie
from tests.hostile.engine.stage import ATTACKS, set_the_stage

if __name__ == "__main__":
    surface, scenario, room = sys.argv[1:]
    set_the_stage([surface])
    outcome = ATTACKS[scenario](Path(room))
    json.dump({"package": codegenie.__file__, "met": outcome.met, "harm": outcome.harm}, sys.stdout)
