"""``python -m taskscape`` is the command line."""

from taskscape.cli import main

main()
