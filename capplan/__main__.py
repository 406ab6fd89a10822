"""`python -m capplan`, and the `capplan` command."""

from capplan.cli import main

if __name__ == "__main__":
    main()
