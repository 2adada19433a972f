"""``python -m experiments.paper``: the same as ``python -m experiments paper``."""

import sys

from experiments.__main__ import main

main(["paper", *sys.argv[1:]])
