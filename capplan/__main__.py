"""`python -m capplan`, and the `capplan` command.

A command is one short process that builds few cycles: the garbage collector would only walk the
hundred thousand objects that imports leave behind, on the way and once more at exit. It is off, and
what exists at exit is left to the operating system.
"""

import atexit
import gc

gc.disable()
atexit.register(gc.freeze)

from capplan.cli import main  # noqa: E402  # after the collector is off

if __name__ == "__main__":
    main()
