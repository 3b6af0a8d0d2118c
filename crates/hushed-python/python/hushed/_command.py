"""The command ``hushed``, which the wheel installs."""

import os
import signal
import sys

from . import _native


def main() -> int:
    """Runs the command in this process; returns its exit code."""
    # As in a program without Python: Ctrl-C ends it at once, unless the verb has handlers of its own (`serve`).
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # For `hushed run --ray`.
    os.environ.setdefault("HUSHED_PYTHON", sys.executable)
    return _native.command(["hushed", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
