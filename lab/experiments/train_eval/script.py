from lab.experiments.train_eval.schema import Params


def script(params: Params) -> str:
    return ""
