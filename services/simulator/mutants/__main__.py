"""Runs all mutants, or those whose name contains a word: `python -m services.simulator.mutants [word]`.

With `--seconds` no mutant begins after that time (3600); another run goes on with the others. With `--turns`
and `--turn` only a part of those is run that few worlds show: CI plays another part each day.
"""

import os
import sys
from argparse import ArgumentParser
from pathlib import Path

from services.simulator.mutants.results import Results
from services.simulator.mutants.runner import part, run
from services.simulator.mutants.table import MUTANTS
from services.simulator.source_state import state_of_source

if __name__ == "__main__":
    parser = ArgumentParser()
    parser.add_argument("word", nargs="*")
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--turns", type=int, default=1, help="how many parts there are")
    parser.add_argument("--turn", type=int, help="which part; without it, all mutants")
    asked = parser.parse_args()
    word = " ".join(asked.word)
    root = Path.cwd()
    kept = Results(root / ".mutants", state_of_source(root))
    chosen = [mutant for mutant in MUTANTS if word in mutant.name]
    if asked.turn is not None:
        chosen = part(chosen, turn=asked.turn, turns=asked.turns)
    sys.exit(run(chosen, kept, jobs=os.cpu_count() or 1, budget_seconds=asked.seconds))
