"""`python -m crosscut`: the same as the command `crosscut`."""

from crosscut.cli import main

main()
