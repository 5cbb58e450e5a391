from lab.contract import Finding
from lab.experiments.train_eval.schema import Result


def explain(result: Result) -> tuple[Finding, ...]:
    return ()
