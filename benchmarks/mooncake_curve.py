"""Coverage curve of a Mooncake trace at every capacity, at its own 512-token blocks: the process that is timed.

A process this short has nothing to collect, so the collector is off from before the imports to the exit.
"""

import gc
import sys


def main(source: str, target: str) -> None:
    """Write tokens covered at ``K`` = 0 .. D slots as a .npy file."""
    import numpy as np

    import capplan

    curve = capplan.measure_coverage(capplan.read_trace(source), chunk_tokens=512)
    np.save(target, curve.covered_tokens(np.arange(curve.n_distinct + 1)))


if __name__ == "__main__":
    gc.disable()
    main(*sys.argv[1:])
    gc.freeze()
