"""The progress bar of ``show_progress_bar``: that of tqdm where it is installed, else a line on standard error."""

import sys
from typing import Any, Optional


class Bar:
    """Progress of a call, as a share of its work."""

    def __init__(self, texts: int) -> None:
        self._texts = texts
        self._bar: Optional[Any] = None
        try:
            from tqdm.auto import tqdm  # type: ignore[import-untyped]
        except ImportError:
            return
        self._bar = tqdm(total=texts, desc="encoding", unit="text", bar_format="{l_bar}{bar}| {n:.1f}/{total} [{elapsed}<{remaining}]")

    def __call__(self, done: int, of: int) -> None:
        """``done`` of ``of`` units of work."""
        texts = self._texts * done / max(of, 1)
        if self._bar is not None:
            self._bar.n = texts
            self._bar.refresh()
        else:
            print(f"\rencoding: {texts:.1f}/{self._texts} texts", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Ends the line."""
        if self._bar is not None:
            self._bar.close()
        else:
            print(file=sys.stderr)
