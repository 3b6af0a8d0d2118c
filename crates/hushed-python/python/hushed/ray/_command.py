"""``hushed run --ray``: the command asks in JSON on standard input, and is told of the run in JSON, a line each.

The first line has the version. Then come ``{"progress": [done, of]}`` in planned seconds, and last ``{"report": …}``,
``null`` if the reply was there already, or ``{"error": …}``.
"""

import json
import os
import sys
import threading
import traceback
from importlib import metadata
from typing import Any, TextIO

from .._errors import HushedError
from . import run


def main() -> None:
    """Runs what is asked for."""
    # What else is printed goes to standard error.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    # Ray asks an address that does not answer so often, 40 seconds each time.
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")
    _tell(out, version=metadata.version("hushed"))
    asked = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_the_command, daemon=True).start()
    try:
        report = run(**asked, progress=lambda done, of: _tell(out, progress=[done, of]))
        _tell(out, report=None if report is None else report._asdict())
    except HushedError as error:
        _tell(out, error={"exit_code": error.exit_code, "name": error.name, "message": str(error)})
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        traceback.print_exc()
        _tell(out, error={"exit_code": 70, "name": "internal", "message": f"hushed.ray: {error!r}"})


def _tell(out: TextIO, **what: Any) -> None:
    print(json.dumps(what), file=out, flush=True)


def _end_with_the_command() -> None:
    """Standard input ends with the command. Ray ends the actors of a driver that has ended."""
    sys.stdin.read()
    os._exit(130)
