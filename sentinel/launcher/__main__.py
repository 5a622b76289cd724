"""`python -m sentinel.launcher`: the same as `sentinel run`, where only the base package is installed."""

from __future__ import annotations

import sys

from sentinel.launcher.options import parse
from sentinel.launcher.supervisor import supervise

if __name__ == "__main__":
    sys.exit(supervise(parse(sys.argv[1:])))
