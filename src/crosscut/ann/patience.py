"""Where patience was."""

from crosscut.ann.ivf.rules import Patience, Watch

__all__ = ["Patience", "Watch"]
