"""`python -m silva` is the command line, for environments whose scripts are not on the PATH."""

from silva.cli import main

if __name__ == "__main__":
    main()
