"""Where the exit rules were."""

from crosscut.ann.ivf.rules import USUAL, Fixed, Rule, as_rule

__all__ = ["USUAL", "Fixed", "Rule", "as_rule"]
