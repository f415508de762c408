"""`python -m blackboard`."""

from blackboard.cli import main

main()
