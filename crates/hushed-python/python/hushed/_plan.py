"""What a run will cost, before it runs."""

import json
from typing import Any, Dict, Optional, Sequence, Union

from . import _native
from ._settings import PathLike, at_least


def plan(
    folder: PathLike,
    tokens: Union[int, Sequence[int]],
    *,
    bucket: Optional[int] = None,
    public_table: bool = False,
    public_prefix: Optional[PathLike] = None,
    answers: Optional[str] = None,
    net: str = "lan",
    steps: bool = False,
) -> Dict[str, Any]:
    """What one pass over texts of these lengths costs and reveals: the object that ``hushed plan --json`` prints.

    ``folder`` is a model folder, of which only the public files are read; ``tokens`` the tokens of each text, the two
    special ones counted. ``public_prefix`` is the file of a public text before them, and ``answers`` what the operator
    opens, if not what is usual for the model (:func:`serve`). ``net`` is the network, as for a client. Bytes and rounds
    are exact, seconds are estimates for this machine, and ``seconds_in_all`` for this network. With ``steps``, the entry
    ``steps`` lists every step.
    """
    lengths = [tokens] if hasattr(tokens, "__index__") else list(tokens)
    lengths = [at_least(1, n, "tokens") for n in lengths]
    padding = None if bucket is None else at_least(1, bucket, "bucket")
    planned: Dict[str, Any] = json.loads(
        _native.plan(
            folder, lengths, padding, bool(public_table), public_prefix, None if answers is None else str(answers), str(net)
        )
    )
    if not steps:
        del planned["steps"]
    return planned
