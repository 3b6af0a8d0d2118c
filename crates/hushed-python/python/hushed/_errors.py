"""One exception for each category of the command's exit codes (docs/errors.md)."""

from typing import Dict, Type


class HushedError(Exception):
    """Every error of this package.

    ``name`` is the stable name of the kind of error and ``exit_code`` that of its category, both as the command has
    them. The message says what to do. It never contains a text or a number derived from one.
    """

    exit_code = 70

    def __init__(self, message: str, name: str = "internal") -> None:
        super().__init__(message)
        self.name = name


class UsageError(HushedError, ValueError):
    """Wrong arguments."""

    exit_code = 2


class InputError(HushedError, ValueError):
    """A text that the model or the server does not take."""

    exit_code = 3


class FolderError(HushedError, ValueError):
    """A model folder that cannot be used."""

    exit_code = 4


class NetworkError(HushedError, ConnectionError):
    """The network or the server: no connection, a dead peer, another certificate, invalid bytes."""

    exit_code = 5


class MismatchError(HushedError):
    """Client and server do not match: version, protocol or model."""

    exit_code = 6


class RefusedError(HushedError):
    """The server refused: no or a wrong token, too many sessions, a limit."""

    exit_code = 7


class LocalError(HushedError, OSError):
    """Files and other resources of this machine."""

    exit_code = 8


class DefectError(HushedError, RuntimeError):
    """A defect of this package: please report it, without your texts."""

    exit_code = 70


_CLASSES: Dict[int, Type[HushedError]] = {
    kind.exit_code: kind
    for kind in (
        UsageError,
        InputError,
        FolderError,
        NetworkError,
        MismatchError,
        RefusedError,
        LocalError,
        DefectError,
    )
}


def of_exit_code(exit_code: int, name: str, message: str) -> HushedError:
    """The exception of an exit code. The extension module makes its errors by it."""
    return _CLASSES.get(exit_code, DefectError)(message, name)


def unsupported(argument: str, why: str) -> UsageError:
    """An argument that sentence-transformers takes and this package does not."""
    return UsageError(f"{argument} is not supported: {why}", "usage")
