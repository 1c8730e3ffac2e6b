"""Evaluation: how well your index or memory answers queries whose answers you know.

golden = read_golden("golden.yaml")
report = evaluate(retriever, golden)
report.write("reports")
"""

from retriever.evaluation.golden import Golden, Question, read_golden
from retriever.evaluation.report import Report, read_report
from retriever.evaluation.running import evaluate

__all__ = ["Golden", "Question", "Report", "evaluate", "read_golden", "read_report"]
