"""Models and tokenizers: made, loaded from a folder, the hub or a GGUF file, saved as Hugging Face folders."""

import importlib.util
from pathlib import Path

import torch
from safetensors import SafetensorError
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.utils.logging import disable_progress_bar

from balanced_aggregation.config import PretrainedModel, TinyModel
from balanced_aggregation.errors import UserError
from balanced_aggregation.files import atomic_path

disable_progress_bar()  # every stage loads a model, and its log is read by people


def character_tokenizer(symbols: str) -> PreTrainedTokenizerFast:
    """A tokenizer with one token a character, and the special tokens ``<pad>`` and ``<eos>``."""
    vocabulary = {token: index for index, token in enumerate(["<pad>", "<eos>", *symbols])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>")


def create_tiny_model(config: TinyModel, tokenizer: PreTrainedTokenizerBase, seed: int) -> PreTrainedModel:
    """A Qwen3 with random weights that depend on the seed alone.

    Its initial scale and its rotary base suit a small width and short texts; the warm start learns much faster.
    """
    architecture = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.heads,
        head_dim=config.hidden_size // config.heads,
        max_position_embeddings=1024,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        initializer_range=0.05,
        rope_parameters={"rope_type": "default", "rope_theta": 100.0},
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(architecture)


def pretrained_path(config: PretrainedModel) -> str:
    """Where a pretrained model is: a folder, in a Python package if the study says so, or an id on the hub.

    Raises:
        UserError: the package cannot be found.
    """
    if not config.python_package:
        return config.path
    try:
        spec = importlib.util.find_spec(config.python_package)
    except ModuleNotFoundError:
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f"model.python_package = {config.python_package!r}: not installed in this environment")
    return str(Path(spec.submodule_search_locations[0]) / config.path)


def load_pretrained(config: PretrainedModel) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a pretrained model in float32 with its tokenizer.

    Raises:
        UserError: the package, the folder or the model on the hub cannot be found or read.
    """
    path = pretrained_path(config)
    options = {"revision": config.revision, "gguf_file": config.gguf_file}
    options = {key: value for key, value in options.items() if value is not None}
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, **options)
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, **options)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"model.path = {config.path!r}: cannot be loaded: {reason}") from error
    if config.gguf_file:  # its weights have been expanded to float32: the model is no longer a quantised one
        del model.config.quantization_config
        model.hf_quantizer = None
    if config.max_positions:
        model.config.max_position_embeddings = config.max_positions
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return model, tokenizer


def save_model(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    weights: dict[str, torch.Tensor] | None = None,
) -> None:
    """Write model and tokenizer atomically as a Hugging Face folder (safetensors).

    Args:
        model: gives the configuration, and the weights unless they are given.
        tokenizer: of the model.
        folder: is replaced if it is there.
        weights: the parameters by name, where the model itself holds only shards of them.
    """
    with atomic_path(folder) as temporary:
        model.save_pretrained(temporary, state_dict=weights)
        tokenizer.save_pretrained(temporary)


def load_model(folder: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load what `save_model` wrote, in float32, in evaluation mode (no dropout).

    Raises:
        UserError: there is no such folder, or it holds no model.
    """
    tokenizer = load_tokenizer(folder)
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()
    except (OSError, ValueError, SafetensorError) as error:
        raise UserError(f"{folder}: not a model that can be loaded: {str(error).splitlines()[0]}") from error
    _check_head(model, folder)
    return model, tokenizer


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer that `save_model` wrote, without the model.

    Raises:
        UserError: there is no such folder, or it holds no tokenizer.
    """
    if not (Path(folder) / "config.json").is_file():
        raise UserError(f"no model in folder {folder}")
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: not a tokenizer that can be loaded: {str(error).splitlines()[0]}") from error


@torch.no_grad()
def _check_head(model: PreTrainedModel, folder: Path) -> None:
    """Refuse models that scale or cap what the output layer gives: training multiplies out chosen positions itself."""
    token = torch.tensor([[1]])
    ours = model.get_output_embeddings()(model.base_model(input_ids=token, use_cache=False).last_hidden_state)
    if not torch.allclose(ours, model(input_ids=token, use_cache=False).logits, rtol=1e-4, atol=1e-4):
        raise UserError(f"{folder}: {type(model).__name__} changes the logits after its output layer: not supported")


def end_token_ids(model: PreTrainedModel | Path, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The tokens that end a response of a model, which is given itself or by its folder."""
    if isinstance(model, Path):
        try:
            settings = GenerationConfig.from_pretrained(model, local_files_only=True)
        except OSError:  # it has no file of its own
            settings = GenerationConfig.from_model_config(AutoConfig.from_pretrained(model, local_files_only=True))
    else:
        settings = model.generation_config
    declared = settings.eos_token_id if settings else None
    ids = declared if isinstance(declared, list) else [declared]
    return sorted({i for i in (*ids, tokenizer.eos_token_id) if i is not None})
