"""What a call cost."""

from dataclasses import dataclass
from typing import List


@dataclass(frozen=True)
class Cost:
    """What left this machine for a call, and what came back.

    ``tokens`` is what the server learned of each text, in the order of the texts: its number of tokens, padding
    included. Bytes are those of frames, TLS not counted. ``rounds`` is how often the client waited for the server.
    The set-up of a session (keys, correlations) belongs to the first call that uses it.
    """

    tokens: List[int]
    passes: int
    sessions: int
    bytes_sent: int
    bytes_received: int
    rounds: int
    setup_seconds: float
    seconds: float
