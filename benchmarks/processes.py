"""A measurement in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any


def in_a_process(arguments: Sequence[str], threads: int, **environment: str) -> Any:
    """What the program that runs prints last, read as JSON, when it is called with ``arguments`` in a new process of so
    many ``threads``. Ends the program where that one fails."""
    command = [sys.executable, sys.argv[0], *arguments]
    pools = {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | pools | environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])
