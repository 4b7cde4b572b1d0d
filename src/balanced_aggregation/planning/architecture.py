"""Shapes of a model, and its parameters counted without its weights."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from balanced_aggregation.config import PretrainedModel, TinyModel
from balanced_aggregation.data.arithmetic import SYMBOLS
from balanced_aggregation.errors import UserError
from balanced_aggregation.models import character_tokenizer, create_tiny_model, pretrained_path


def _shapes(family: str, hidden: int, layers: int, heads: tuple[int, int], wide: int, vocabulary: int, **others):
    return {
        "model_type": family,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "intermediate_size": wide,
        "vocab_size": vocabulary,
        **others,
    }


_QWEN3 = {"head_dim": 128, "max_position_embeddings": 40960}
_MATH = {"max_position_embeddings": 4096}

KNOWN = {
    "Qwen/Qwen2.5-Math-1.5B": _shapes("qwen2", 1536, 28, (12, 2), 8960, 151_936, tie_word_embeddings=True, **_MATH),
    "Qwen/Qwen2.5-Math-7B": _shapes("qwen2", 3584, 28, (28, 4), 18944, 152_064, tie_word_embeddings=False, **_MATH),
    "Qwen/Qwen3-0.6B": _shapes("qwen3", 1024, 28, (16, 8), 3072, 151_936, tie_word_embeddings=True, **_QWEN3),
    "Qwen/Qwen3-1.7B": _shapes("qwen3", 2048, 28, (16, 8), 6144, 151_936, tie_word_embeddings=True, **_QWEN3),
    "Qwen/Qwen3-4B": _shapes("qwen3", 2560, 36, (32, 8), 9728, 151_936, tie_word_embeddings=True, **_QWEN3),
    "Qwen/Qwen3-8B": _shapes("qwen3", 4096, 36, (32, 8), 12288, 151_936, tie_word_embeddings=False, **_QWEN3),
}
"""Models on the hub whose shapes need no network: what their ``config.json`` states."""


@dataclass(frozen=True)
class Architecture:
    """A decoder-only transformer with gated MLPs and rotary positions, in numbers."""

    family: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    vocabulary: int
    positions: int
    tied: bool
    """The output layer has the embedding's weights."""
    qk_norm: bool
    """Queries and keys are normalised head by head, as in Qwen3."""
    parameters: int
    """All of them; a tied one once."""
    layer_parameters: int
    """Of one decoder layer."""
    layer_matrix_parameters: int
    """Of those, what is in matrices: each makes a multiplication and an addition for every token."""
    largest_parameter: int
    """Elements of the largest tensor."""

    @property
    def root_parameters(self) -> int:
        """Outside of the layers: embedding, output layer, last norm."""
        return self.parameters - self.layers * self.layer_parameters

    @property
    def head_parameters(self) -> int:
        """Of the output layer, also if they are the embedding's."""
        return self.vocabulary * self.hidden

    @property
    def embedding_share(self) -> float:
        """Share of the parameters in the embedding and an output layer of its own."""
        return self.head_parameters * (1 if self.tied else 2) / self.parameters

    def kv_bytes(self, element: int, tensor_parallel: int = 1) -> int:
        """Bytes of KV cache for one token on one GPU: ``2 * layers * kv_heads * head_size * element``.

        Args:
            element: bytes of an element.
            tensor_parallel: GPUs that share the heads; with more of them than KV heads, each holds one head.
        """
        return 2 * self.layers * max(self.kv_heads // tensor_parallel, 1) * self.head_size * element


def find_architecture(model: TinyModel | PretrainedModel, config_file: Path | None = None) -> Architecture:
    """The shapes of a study's model: from its folder, from the table of known models, or made for a tiny one.

    Args:
        model: as the study names it.
        config_file: a ``config.json`` to use instead of looking for one.

    Raises:
        UserError: there is no such file or folder, the model isn't known, or is of another kind than ours.
    """
    if model.kind == "tiny":
        with torch.device("meta"):
            return describe(create_tiny_model(model, character_tokenizer(SYMBOLS), 0))
    found = describe(_on_meta(_read_config(model, config_file), config_file or model.path))
    raised = getattr(model, "max_positions", None)
    return found if raised is None else Architecture(**{**vars(found), "positions": raised})


def describe(model: PreTrainedModel) -> Architecture:
    """Count the parameters of a model, which may be on the meta device.

    Raises:
        UserError: it isn't a stack of equal decoder layers with attention and a gated MLP.
    """
    config, layers = model.config, getattr(model.base_model, "layers", None)
    if not isinstance(layers, nn.ModuleList) or len({_count(layer) for layer in layers}) != 1:
        raise UserError(f"{type(model).__name__}: only models of equal decoder layers can be planned")
    matrices = [p for p in layers[0].parameters() if p.ndim == 2]
    if any(p.ndim > 2 for p in layers[0].parameters()) or len(matrices) != 7:
        raise UserError(f"{type(model).__name__}: only layers of attention and one gated MLP can be planned")
    heads = config.num_attention_heads
    head_size = getattr(config, "head_dim", None) or config.hidden_size // heads
    return Architecture(
        family=config.model_type,
        hidden=config.hidden_size,
        layers=len(layers),
        heads=heads,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_size=head_size,
        intermediate=config.intermediate_size,
        vocabulary=config.vocab_size,
        positions=config.max_position_embeddings,
        tied=bool(config.tie_word_embeddings),
        qk_norm=any(p.shape == (head_size,) for name, p in layers[0].named_parameters() if "norm" in name),
        parameters=_count(model),
        layer_parameters=_count(layers[0]),
        layer_matrix_parameters=sum(p.numel() for p in matrices),
        largest_parameter=max(p.numel() for p in model.parameters()),
    )


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _on_meta(config: PreTrainedConfig, origin: Path | str) -> PreTrainedModel:
    try:
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config)
    except (ValueError, AttributeError, TypeError) as error:
        raise UserError(f"{origin}: not a causal language model: {str(error).splitlines()[0]}") from error


def _read_config(model: PretrainedModel, config_file: Path | None) -> PreTrainedConfig:
    if config_file is not None:
        return _parse_config(config_file)
    try:
        folder = Path(pretrained_path(model))
    except UserError as error:
        raise UserError(f"{error}; or give --config config.json") from error
    if model.gguf_file and (folder / model.gguf_file).is_file():
        return AutoConfig.from_pretrained(folder, gguf_file=model.gguf_file)
    if (folder / "config.json").is_file():
        return _parse_config(folder / "config.json")
    if model.path in KNOWN:
        return AutoConfig.for_model(**KNOWN[model.path])
    raise UserError(
        f"model.path = {model.path!r}: no folder with a config.json, and not among the known models "
        f"({', '.join(KNOWN)}); give a local folder, or --config config.json"
    )


def _parse_config(file: Path) -> PreTrainedConfig:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        return AutoConfig.for_model(**values)
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise UserError(f"{file}: not the configuration of a model: {str(error).splitlines()[0]}") from error
