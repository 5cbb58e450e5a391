"""The chosen network as the text of a program: its classes, what makes it with its batch, its loss."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import FunctionType, ModuleType

from lab.experiments.memory_timeline.schema import LANGUAGE, Params
from lab.workloads import known_models, models

_SOURCES: dict[str, tuple[type | FunctionType, ...]] = {
    "mlp": (models.MLP,),
    "cnn": (models.CNN,),
    "gpt": (models.GPTBlock, models.GPT),
    "lstm": (models.LSTM,),
    "llama": (known_models.RMSNorm, known_models.LlamaBlock, known_models.rotated, known_models.Llama),
    "vit": (models.GPTBlock, known_models.ViT),
    "resnet50": (known_models.Bottleneck, known_models.ResNet50),
}


def program_text(params: Params) -> tuple[str, str, str]:
    """(constants and classes, lines that make ``model``, ``x`` and ``y``, expression of the loss)."""
    constants = _constants(models, ("VOCABULARY", "CLASSES", "HEAD_WIDTH", "IMAGE"))
    if params.model in ("llama", "vit", "resnet50"):
        constants = _constants(models, ("HEAD_WIDTH",)) + _constants(
            known_models, ("PICTURE", "PATCH", "LABELS", "STAGES")
        )
    classes = "\n\n".join(inspect.getsource(kind) for kind in (models.Blocks, *_SOURCES[params.model]))
    made = f"model = {_constructor(params)}\n"
    batch, drawn = params.batch, {"mlp": "{0}, {2}", "cnn": "{0}, 3, IMAGE, IMAGE", "lstm": "{0}, {1}, {2}"}
    if params.model in LANGUAGE:
        draw = f"ids = torch.randint({params.vocabulary}, ({batch}, {params.seq + 1}))\n"
        return f"{constants}\n\n{classes}", f"{made}{draw}x, y = ids[:, :-1], ids[:, 1:]\n", _TOKENS
    shape = drawn.get(params.model, "{0}, 3, PICTURE, PICTURE").format(batch, params.seq, params.width)
    labels = "CLASSES" if params.model in drawn else "LABELS"
    made += f"x, y = torch.randn({shape}), torch.randint({labels}, ({batch},))\n"
    return f"{constants}\n\n{classes}", made, "F.cross_entropy(model(x), y)"


_TOKENS = "F.cross_entropy(model(x).flatten(0, 1), y.flatten())"


def _constants(module: ModuleType, names: Sequence[str]) -> str:
    return "".join(f"{name} = {getattr(module, name)}\n" for name in names)


def _constructor(params: Params) -> str:
    language, size = params.language, f"{params.layers}, {params.width}"
    heads = language.heads or max(1, params.width // models.HEAD_WIDTH)
    kv_heads, hidden = language.kv_heads or heads, round(language.mlp_ratio * params.width)
    match params.model:
        case "gpt":
            block = f"heads={heads}, kv_heads={kv_heads}, mlp_ratio={language.mlp_ratio}, activation={language.activation!r}"
            return f"GPT({size}, {language.positions or params.seq}, {language.vocabulary}, {language.tied}, {block})"
        case "llama":
            rest = f"{language.activation!r}, {language.vocabulary}, {language.tied}"
            return f"Llama({size}, {heads}, {kv_heads}, {hidden}, {rest})"
        case "vit":
            return f"ViT({size}, {heads}, {language.mlp_ratio}, {language.activation!r})"
        case "resnet50":
            return "ResNet50()"
    return f"{params.model.upper()}({size})"
