"""Rules that a user writes about catalogue names: read from text, judged beside our own, told as findings."""

from overwatch.diagnose.rules.judged import Streak, judge_rules
from overwatch.diagnose.rules.rule import Rule, RuleConfig, Term
from overwatch.diagnose.rules.where import RuleError

__all__ = ["Rule", "RuleConfig", "RuleError", "Streak", "Term", "judge_rules"]
