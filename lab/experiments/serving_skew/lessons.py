"""Presets with a prediction to make, and the answers to the interview questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lab.contract import Lesson
from lab.experiments.serving_skew.readings import gap_at_first, shown_by_name
from lab.experiments.serving_skew.schema import Params, Result

_REQUIREMENT = (
    "Find why a model that works in training fails in serving: the first place where the two paths part, not the last."
)


def _lesson(title: str, params: Params, question: str, choices: Mapping[str, str], answer: Callable[[Result], str], evidence: Callable[[Result], float], name: str, texts: tuple[str, str, str]) -> Lesson:  # fmt: skip
    return Lesson(
        row="R2", title=title, params=params, question=question, choices=choices, answer=answer, evidence=evidence,
        evidence_name=name, requirement=_REQUIREMENT, mechanism=texts[0], proof=texts[1], recovery=texts[2], view=params.view,
    )  # fmt: skip


def _changed(result: Result) -> float:
    return result.labels_changed


lessons = (
    _lesson(
        "two columns swapped", Params(skew="feature order"),
        "The serving program reads income before age. At which stage do the paths part first?",
        {"at the first module": "The module gets other numbers because the features already differ.",
         "at the features": "Two columns of the very first stage hold each other's values.",
         "at the labels": "Labels follow: most stages before them differ already."},
        lambda r: "at the features" if r.first == "features" else "at the labels" if r.first == "label" else "at the first module",
        _changed, "share of names that change",
        ("A tensor has no column names: order is a contract between two programs.",
         "The features differ in two columns, and 61 percent of the names change.",
         "Store the list of columns with the weights and read rows by name."),
    ),
    _lesson(
        "eval was forgotten", Params(skew="train mode"),
        "The served model is in train mode. Which stage is the first that differs?",
        {"the first linear layer": "It computes the same in both modes: its outputs are equal bit for bit.",
         "Dropout": "It differs too, but BatchNorm comes before it.",
         "BatchNorm": "It is the first module that reads the mode."},
        lambda r: {"module bn": "BatchNorm", "module drop": "Dropout"}.get(r.first, "the first linear layer"),
        gap_at_first, "gap at the first stage, in standard deviations",
        ("BatchNorm normalises by the batch in train mode; which rows come together decides each answer.",
         "Everything before BatchNorm is equal bit for bit; BatchNorm is 0.46 standard deviations apart.",
         "model.eval() when loading; ask twice: answers that change show Dropout as well."),
    ),
    _lesson(
        "a head that was not loaded", Params(skew="head not loaded"),
        "strict=False left the last layer as it was built. Where do the paths part?",
        {"at the last layer": "All layers before it were loaded.",
         "at the first layer": "Its names fit and were loaded.",
         "nowhere before the labels": "The logits come from the layer that was not loaded."},
        lambda r: "at the last layer" if r.first == "module fc2" else "at the first layer" if r.first == "module fc1" else "nowhere before the labels",
        _changed, "share of names that change",
        ("Loading with strict=False skips what does not fit and says so only in its answer.",
         "The first four modules agree bit for bit, fc2 differs, 78 percent of the names change.",
         "strict=True; compare the two state dicts before anything runs."),
    ),
    _lesson(
        "names sorted another way", Params(skew="labels permuted"),
        "Every probability agrees bit for bit. Can the answers still be wrong?",
        {"no, equal probabilities give equal answers": "An index becomes an answer through a list, and the list is another one.",
         "yes, most of them": "Two names of the list changed places.",
         "yes, a few near ties": "No number differs, so there are no ties to break."},
        lambda r: "yes, most of them" if r.labels_changed > 0.5 else "yes, a few near ties" if r.labels_changed else "no, equal probabilities give equal answers",
        _changed, "share of names that change",
        ("The list of names is a part of the model; folders and sets sort it another way.",
         "All stages up to the probabilities are equal, 77 percent of the names are wrong.",
         "Save the list in the checkpoint."),
    ),
    _lesson(
        "an older checkpoint", Params(skew="old checkpoint"),
        "One weight matrix is 0.1 percent smaller than the one that was tested. How many of 64 golden rows change their name?",
        {"none": "The probabilities move by less than any margin here.", "about one": "The nearest margin is still larger than the change.",
         "about ten": "The change of a logit is a thousandth of its size."},
        lambda r: "none" if not r.labels_changed else "about one" if r.labels_changed < 0.05 else "about ten",
        gap_at_first, "gap at the first stage, in standard deviations",
        ("Accuracy on a golden set only sees what crosses a margin.",
         "fc1 is 0.0025 standard deviations apart and no name changes.",
         "Compare values of stages, and a hash of the weights."),
    ),
    _lesson(
        "what golden rows can show", Params(view="power"),
        "17 departures are planted in turn. How many change at least one name of 64 rows?",
        {"17": "By value all 17 show; names are coarser.", "4": "That is what a single row shows.",
         "about ten": "The others stay below every margin."},
        lambda r: "17" if shown_by_name(r, 64) >= 16 else "4" if shown_by_name(r, 64) <= 5 else "about ten",
        lambda r: float(shown_by_name(r, 64)), "departures that change a name",
        ("A golden set is a test, and a test has power: plant each fault and see whether it fails.",
         "All 17 show in the values of some stage, 10 change a name.",
         "Compare stages; choose rows on which each step matters; measure the power of the set."),
    ),
    _lesson(
        "older customers", Params(view="drift", skew="none"),
        "Live customers are 25 years older than those of training, and answers got worse. What do the golden rows say?",
        {"the paths part at the features": "The golden rows are the old ones: both paths treat them alike.",
         "the paths agree": "Nothing is wrong with the serving code.",
         "the paths part at normalisation": "Both use the constants of training."},
        lambda r: "the paths agree" if not r.first else f"the paths part at {'the features' if r.first == 'features' else 'normalisation'}",
        lambda r: next(d.shift_std for d in r.drift if d.column == "age"), "shift of the age in standard deviations",
        ("Skew is two programs that differ; drift is a world that does.",
         "The golden gap is 0; age has moved by 1.44 standard deviations of training.",
         "Golden rows for skew, statistics of live inputs for drift. Keep the two verdicts apart."),
    ),
)  # fmt: skip
