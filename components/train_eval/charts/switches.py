"""Both switches as one picture: what mode decides above, what gradient recording decides below."""

from __future__ import annotations

from collections.abc import Sequence

from components.kit.palette import Theme
from components.train_eval.charts.lamps import Drawn, Lamp, lamp_chart
from lab.quantities import bytes_text, number_text, short_bytes_text
from lab.records.modes_models import SwitchRow


def switch_chart(rows: Sequence[SwitchRow], chosen: tuple[str, str], theme: Theme) -> Drawn:
    """Six columns, one a combination; rows that change with the mode first, then those that change with recording."""
    lamps = []
    for row in rows:
        column = f"{row.mode}()|{row.gradients}"
        marked = (row.mode, row.gradients) == chosen
        kept = bytes_text(row.saved_bytes)
        for name, on, text, detail in (
            ("Dropout drops", row.dropped_fraction > 0, f"{row.dropped_fraction:.0%}", "share of active units set to zero"),
            ("two calls differ", row.output_spread > 0, _yes(row.output_spread > 0), f"by at most {number_text(row.output_spread)}"),
            ("running statistics move", row.statistics_moved, _yes(row.statistics_moved), f"{row.batches_counted} batches counted"),
            ("output requires grad", row.requires_grad, _yes(row.requires_grad), row.graph or "no grad_fn"),
            ("nodes in the graph", row.graph_nodes > 0, str(row.graph_nodes), row.graph or "no graph"),
            ("bytes kept for backward", row.saved_bytes > 0, short_bytes_text(row.saved_bytes), kept),
            ("backward() runs", not row.backward_error, _yes(not row.backward_error), row.backward_error or "runs"),
            ("may enter a graph later", not row.is_inference, _yes(not row.is_inference), "inference tensors may not" if row.is_inference else "normal tensor"),
        ):  # fmt: skip
            lamps.append(Lamp(name, column, bool(on), text, detail, marked))
    return lamp_chart(
        lamps,
        theme=theme,
        row_title="measured",
        description="Six combinations of train or eval with grad, no_grad or inference_mode, and what each does.",
    )


def _yes(on: bool) -> str:
    return "yes" if on else "no"
