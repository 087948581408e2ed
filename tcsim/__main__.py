"""`python -m tcsim`: the command line."""

from tcsim.cli import main

if __name__ == "__main__":
    main()
