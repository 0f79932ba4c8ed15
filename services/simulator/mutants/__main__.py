"""Runs all mutants, or those whose name contains a word: `python -m services.simulator.mutants [word]`."""

import os
import sys
from pathlib import Path

from services.simulator.mutants.results import Results, state_of_source
from services.simulator.mutants.runner import run
from services.simulator.mutants.table import MUTANTS

if __name__ == "__main__":
    word = " ".join(sys.argv[1:])
    root = Path.cwd()
    kept = Results(root / ".mutants", state_of_source(root))
    chosen = [mutant for mutant in MUTANTS if word in mutant.name]
    sys.exit(run(chosen, kept, jobs=os.cpu_count() or 1))
