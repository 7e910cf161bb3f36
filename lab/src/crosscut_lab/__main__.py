"""`python -m crosscut_lab`: the same as `crosscut-lab`."""

from crosscut_lab.cli import main

if __name__ == "__main__":
    main()
