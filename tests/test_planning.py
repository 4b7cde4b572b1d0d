"""The plan against numbers worked by hand, against what autograd saves, and against torch's own tracker."""

import json
from pathlib import Path
from types import MethodType

import hypothesis.strategies as st
import pytest
import torch
import torch.distributed as dist
import yaml
from hypothesis import given, settings
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.qwen3 import modeling_qwen3

from balanced_aggregation import cli
from balanced_aggregation.config import Compute, PretrainedModel, TinyModel, Training
from balanced_aggregation.errors import UserError
from balanced_aggregation.planning import memory
from balanced_aggregation.planning.architecture import describe, find_architecture
from balanced_aggregation.planning.assumptions import Assumptions
from balanced_aggregation.planning.checks import largest_moments
from balanced_aggregation.planning.cost import Drawn, forward_operations, generation_seconds, update_cost
from balanced_aggregation.planning.limits import longest_sequence, position_problems
from balanced_aggregation.planning.plan import make_plan
from balanced_aggregation.study_file import load_study, parse_study
from balanced_aggregation.training.log_probs import CHUNK_ELEMENTS, selected_log_probs

ROOT = Path(__file__).parent.parent

STUDY = {
    "study": "planned",
    "rules": ["token", "sequence", "balanced"],
    "seeds": [0, 1],
    "model": {"kind": "pretrained", "path": "Qwen/Qwen3-1.7B"},
    "data": {
        "train": {"kind": "polaris-53k"},
        "benchmarks": [{"kind": "math-500"}, {"kind": "aime-2024"}],
        "max_prompt_tokens": 1024,
    },
    "training": {
        "steps": 100,
        "prompts_per_step": 128,
        "group_size": 8,
        "mini_batches": 2,
        "max_new_tokens": 8192,
        "micro_batch_tokens": 16384,
    },
    "rollout": {"engine": "vllm"},
    "compute": {"gpus_per_node": 8, "strategy": "fsdp", "dtype": "bfloat16", "activation_checkpointing": True},
    "evaluation": {"every": 50},
}


def changed(**values):
    """The study with other values, by ``section__key``."""
    study = json.loads(json.dumps(STUDY))
    for path, value in values.items():
        *sections, key = path.split("__")
        section = study
        for name in sections:
            section = section[name]
        section[key] = value
    return study


def plan_of(**values):
    study = parse_study(changed(**values), "test")
    return make_plan(study, find_architecture(study.model), Assumptions())


def small(family="qwen3", layers=2, dtype=torch.float32, **shapes):
    shapes = {
        "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 160,
        "vocab_size": 300, "tie_word_embeddings": False, "max_position_embeddings": 256,
    } | ({"head_dim": 24} if family == "qwen3" else {}) | shapes  # fmt: skip
    config = AutoConfig.for_model(family, num_hidden_layers=layers, **shapes)
    return AutoModelForCausalLM.from_config(config, dtype=dtype)


@pytest.fixture(scope="module")
def architecture():
    return describe(small())


def test_a_small_model_by_hand(architecture):
    # One layer: queries 64 x 96, keys and values 64 x 48 each, output 96 x 64; three matrices of the MLP 64 x 160;
    # norms of 64 before attention and MLP, of 24 for queries and for keys.
    matrices = 64 * 96 + 2 * 64 * 48 + 96 * 64 + 3 * 64 * 160
    assert architecture.layer_matrix_parameters == matrices == 49_152
    assert architecture.layer_parameters == matrices + 2 * 64 + 2 * 24 == 49_328
    # Embedding and output layer 300 x 64 each, the last norm 64.
    assert architecture.root_parameters == 2 * 300 * 64 + 64 == 38_464
    assert architecture.parameters == 2 * 49_328 + 38_464 == 137_120
    assert architecture.embedding_share == 38_400 / 137_120
    # Keys and values of 2 heads of 24 in 2 layers, 2 bytes each; split over two GPUs, and over four, which repeat them.
    assert architecture.kv_bytes(2) == 2 * 2 * 2 * 24 * 2 == 384
    assert architecture.kv_bytes(2, 2) == architecture.kv_bytes(2, 4) == 192


@pytest.mark.parametrize(
    ("name", "parameters", "kv"),
    [
        ("Qwen/Qwen2.5-Math-7B", 7_615_616_512, 2 * 28 * 4 * 128 * 2),
        ("Qwen/Qwen2.5-Math-1.5B", 1_543_714_304, 2 * 28 * 2 * 128 * 2),
        ("Qwen/Qwen3-0.6B", 596_049_920, 2 * 28 * 8 * 128 * 2),
        ("Qwen/Qwen3-1.7B", 1_720_574_976, 2 * 28 * 8 * 128 * 2),
        ("Qwen/Qwen3-4B", 4_022_468_096, 2 * 36 * 8 * 128 * 2),
        ("Qwen/Qwen3-8B", 8_190_735_360, 2 * 36 * 8 * 128 * 2),
    ],
)
def test_parameters_of_known_models(name, parameters, kv):
    found = find_architecture(PretrainedModel(kind="pretrained", path=name))
    assert (found.parameters, found.kv_bytes(2)) == (parameters, kv)


def test_shapes_come_from_a_folder_and_from_a_file(tmp_path):
    small("llama").config.save_pretrained(tmp_path)
    model = PretrainedModel(kind="pretrained", path=str(tmp_path))
    found = find_architecture(model)
    assert (found.family, found.head_size, found.positions, found.qk_norm) == ("llama", 16, 256, False)
    elsewhere = PretrainedModel(kind="pretrained", path="somebody/model")
    assert find_architecture(elsewhere, tmp_path / "config.json") == found
    with pytest.raises(UserError, match=r"model.path = 'somebody/model': no folder .* or --config config.json"):
        find_architecture(elsewhere)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="not the configuration of a model"):
        find_architecture(model)


def test_a_mixture_of_experts_is_refused(tmp_path):
    config = AutoConfig.for_model(
        "qwen3_moe", hidden_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        intermediate_size=64, moe_intermediate_size=16, num_experts=4, vocab_size=50,
    )  # fmt: skip
    config.save_pretrained(tmp_path)
    with pytest.raises(UserError, match="only layers of attention and one gated MLP"):
        find_architecture(PretrainedModel(kind="pretrained", path=str(tmp_path)))


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", ["qwen3", "qwen2", "llama"])
def test_activations_are_what_autograd_saves(family, dtype, checkpointing):
    """Two more layers save as much more as the formula says, to the byte; all of a model within 2 %."""
    tokens = torch.randint(0, 300, (3, 50), generator=torch.Generator().manual_seed(0))
    saved = {}
    for layers in (2, 4):
        model = small(family, layers, getattr(torch, dtype)).train()
        if checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
        kept = {}

        def pack(tensor, weights=weights, kept=kept):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                kept[storage.data_ptr()] = (storage.nbytes(), tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            output = model.base_model(input_ids=tokens, use_cache=False).last_hidden_state
        saved[layers] = sum(size for size, _ in kept.values())
        assert output.requires_grad
    shapes, element = describe(small(family, 2)), memory.ELEMENT[dtype]
    expected = memory.saved_activations(shapes, element, checkpointing) * tokens.numel()
    assert saved[4] - saved[2] == expected
    # What the two layers don't explain is the last norm's: its input in float32, normalised; and some vectors.
    rest = (4 + element) * 64 * tokens.numel()
    assert saved[2] == pytest.approx(expected + rest, rel=0.1 if checkpointing else 0.02)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_peak_of_an_update_is_near_that_of_torchs_tracker(checkpointing, monkeypatch):
    """FSDP2 on 8 ranks, none of them real: torch follows every allocation of a micro-batch without computing it."""
    monkeypatch.setattr(modeling_qwen3, "create_causal_mask", lambda **_: None)  # as outside of a fake mode
    ranks, tokens = 8, torch.Size((2, 2048))
    monkeypatch.setitem(CHUNK_ELEMENTS, "cpu", CHUNK_ELEMENTS["cuda"])  # what is planned is a GPU
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)

    def log_probs(model, input_ids):
        hidden = model.base_model(input_ids=input_ids, use_cache=False).last_hidden_state.flatten(0, 1)
        hidden = hidden[torch.arange(len(hidden))]
        return selected_log_probs(hidden, model.lm_head.weight, None, input_ids.flatten())

    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    try:
        mesh = init_device_mesh("cpu", (ranks,))
        with FakeTensorMode(allow_non_fake_inputs=True):
            model = small(
                layers=6, hidden_size=512, num_attention_heads=8, num_key_value_heads=4, head_dim=64,
                intermediate_size=1536, vocab_size=20_000,
            ).train()  # fmt: skip
            shapes = describe(model)
            if checkpointing:
                model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            for module in (*model.base_model.layers, model):
                fully_shard(module, mesh=mesh, mp_policy=policy, reshard_after_forward=module is not model)
            model.forward = MethodType(log_probs, model)
            tracker = FSDPMemTracker(model)
            input_ids = torch.zeros(tokens, dtype=torch.int64)
            tracker.track_inputs((input_ids,))
            with tracker:
                for _ in range(2):  # the second has gradients of the first beside it
                    tracker.reset_mod_stats()
                    model(input_ids).sum().backward()
            (measured,) = (found["Total"] for found in tracker.get_tracker_snapshot("peak").values())
    finally:
        dist.destroy_process_group()
    compute = Compute(gpus_per_node=ranks, strategy="fsdp", dtype="bfloat16", activation_checkpointing=checkpointing)
    state = memory.trainer_state(shapes, compute, with_reference=False)
    planned = max(m.total for m in memory.update_moments(shapes, compute, tokens.numel()))
    planned += state["weights (float32)"] + state["gradients (float32)"]
    assert 0.97 * measured < planned < 1.25 * measured


def test_memory_of_the_update_by_hand(architecture):
    compute = Compute(gpus_per_node=2, strategy="fsdp", dtype="bfloat16", activation_checkpointing=True)
    state = memory.trainer_state(architecture, compute, with_reference=True)
    assert state == {
        "weights (float32)": 4 * 68_560,
        "gradients (float32)": 4 * 68_560,
        "Adam's moments (float32)": 8 * 68_560,
        "reference model (float32)": 4 * 68_560,
    }
    # A token in a layer: two norms 2 (4 x 64 + 4 + 2 x 2 x 64), of heads 6 (96 + 48) + 4 (4 + 2), attention
    # 2 (2 x 96 + 2 x 48) + 4 x 4, MLP 4 x 2 x 160.
    assert memory.layer_activations(architecture, 2) == 1032 + 888 + 592 + 1280 == 3792
    at_logits, at_head, at_layer, at_root, at_step = memory.update_moments(architecture, compute, tokens=100)
    inputs, head = 2 * 2 * 64 * 100, (4 * 64 + 4 + 4 * 2 * 64) * 100
    around = {"gathered weights": 2 * (38_464 + 2 * 49_328), "activations": inputs + head}
    # 100 x 300 logits are one chunk.
    assert at_logits.items == around | {"logits chunk": 6 * 100 * 300}
    assert at_head.items == around | {"logits chunk": 6 * 100 * 300, "whole gradients": 6 * 300 * 64}
    *_, many, _, _, _ = memory.update_moments(architecture, compute, tokens=600_000)  # 180 million logits: above 2^27
    assert (many.items["logits chunk"], many.items["whole gradients"]) == (10 * 2**27, 6 * 300 * 64)
    assert at_layer.items == {
        "gathered weights": 2 * (38_464 + 3 * 49_328),
        "activations": inputs + 379_200 + 2 * (2 * 64 + 3 * 160) * 100 + 2 * 64 * 100,
        "whole gradients": 2 * 300 * 64 + 10 * 49_328,
    }
    assert at_root.items["whole gradients"] == 2 * 38_464 + 4 * 38_464 + 2 * 38_464 + 4 * 49_328
    assert at_step.items == {"optimiser's temporaries": 4 * 68_560}


def test_kv_cache_by_hand(architecture):
    engine = memory.vllm_engine(architecture, "bfloat16", 1, share=10e6, working=1e6)
    # 2 bytes for each of 137,120 parameters; a sequence of 100 tokens takes four blocks of 32.
    assert engine.cache == 10e6 - 1e6 - 274_240 == 8_725_760
    assert engine.full_length(100) == 8_725_760 // (128 * 384) == 177
    assert sum(engine.items.values()) == 10e6
    assert memory.vllm_engine(architecture, "bfloat16", 1, share=1e6, working=1e6).full_length(1) == 0


def test_operations_by_hand(architecture):
    # 8 tokens, 5 of them a response: 2 layers of 49,152 weights; 8 x 8 / 2 pairs; 5 x 300 x 64 in the output layer.
    matrices, pairs, head = 2 * 2 * 49_152 * 8, 4 * 2 * 4 * 24 * 32, 2 * 300 * 64 * 5
    assert forward_operations(architecture, 3, 5) == matrices + pairs + head
    training = Training(steps=1, prompts_per_step=4, group_size=2, mini_batches=2, epochs=3, micro_batch_tokens=16)
    compute = Compute(gpus_per_node=2, strategy="fsdp", dtype="bfloat16", activation_checkpointing=True)
    work = update_cost(architecture, training, compute, Drawn(8, 3, 5, 10), 1e9, Assumptions())
    assert work.useful == 8 * 9 * (matrices + pairs + head)
    assert work.computed == work.useful + 8 * 3 * (matrices + pairs) + 4 * (matrices + pairs + head)
    assert work.computing == work.computed / 2 / 1e9
    # Each process has 4 responses of a mini-batch of 4 split in two: micro-batches of two, one for each mini-batch.
    learning = 2 * 137_120 + 2 * 2 * 49_328 + 4 * 137_120
    reading = 2 * 137_120
    assert work.communicating == pytest.approx(2 * (3 * learning + 0.5 * reading) / 2 / 450e9)


def test_decoding_time_by_hand(architecture):
    engine = memory.vllm_engine(architecture, "bfloat16", 1, share=10e6, working=1e6)
    # 100 responses of 20 tokens after 12, 50 side by side, the longest 60: 100 x 20 / 50 + 40 steps.
    seconds, side_by_side = generation_seconds(architecture, engine, Drawn(100, 12, 20, 60), 50, 1, 1e30, 1e6, 0.5)
    assert side_by_side == 50
    assert seconds == pytest.approx((80 * 274_240 + 100 * 20 * (12 + 10) * 384) / 1e6 + 80 * 0.5)
    # With arithmetic the bottleneck: the prompts, and the forward passes over the rest.
    seconds, _ = generation_seconds(architecture, engine, Drawn(100, 12, 20, 60), 50, 2, 1e6, 1e30, 0)
    assert seconds == pytest.approx(100 * forward_operations(architecture, 12, 20) / 2e6)


def test_workload_by_hand():
    plan = plan_of()
    # 100 steps x 128 prompts x 8; prompts of 102.4 and responses of 4,096 tokens expected, 1,024 and 8,192 at most.
    assert (plan.sampled.prompts, plan.sampled.responses) == (12_800, 102_400)
    assert plan.sampled.expected == pytest.approx(102_400 * 4198.4)
    assert plan.sampled.worst == 102_400 * 9216
    # 500 problems x (4 + greedy) and 30 x (32 + greedy).
    assert plan.evaluated.responses == 500 * 5 + 30 * 33
    assert (plan.trainings, plan.updates, plan.checkpoints) == (6, 200, 1 + 6 * 2)
    assert plan.study_hours("worst")["update"] == 6 * plan.hours["worst"].update
    assert plan.problems == []


def test_one_phase_holds_what_the_other_gives_back():
    awake, asleep = plan_of(rollout__sleep=False), plan_of()
    fullest = {name: largest_moments(p.moments) for name, p in (("awake", awake), ("asleep", asleep))}
    assert fullest["asleep"]["update"].items["engine: asleep"] == 2e9
    share = sum(value for key, value in fullest["awake"]["update"].items.items() if key.startswith("engine"))
    assert share == pytest.approx(0.6 * 80e9)
    assert fullest["asleep"]["rollout"].items["Adam's moments (float32)"] == asleep.model.parameters


DEEP = find_architecture(TinyModel(hidden_size=96, layers=12))


@settings(max_examples=40)
@given(
    gpus=st.integers(1, 8), nodes=st.integers(1, 8), dtype=st.sampled_from(["float32", "bfloat16"]),
    checkpointing=st.booleans(), tokens=st.integers(1, 40_000),
)  # fmt: skip
def test_more_gpus_need_less_of_each(gpus, nodes, dtype, checkpointing, tokens):
    model = DEEP
    few = Compute(nodes=nodes, gpus_per_node=gpus, strategy="fsdp", dtype=dtype, activation_checkpointing=checkpointing)
    more = few.model_copy(update={"nodes": nodes + 1})
    whole = few.model_copy(update={"strategy": "ddp"})

    def needed(compute, tokens=tokens):
        moments = memory.update_moments(model, compute, tokens)
        return sum(memory.trainer_state(model, compute, True).values()) + max(m.total for m in moments)

    assert needed(more) < needed(few) <= needed(few, tokens + 1)
    state = [sum(memory.trainer_state(model, compute, True).values()) for compute in (few, whole)]
    assert state[0] <= state[1]
    if few.processes >= 4:
        assert needed(few) < needed(whole)


@settings(max_examples=25)
@given(length=st.integers(256, 8000), steps=st.integers(1, 500), share=st.floats(0.05, 1))
def test_longer_takes_longer(length, steps, share):
    def hours(assumptions=Assumptions(), **values):  # noqa: B008
        study = parse_study(changed(training__max_new_tokens=length, training__steps=steps) | values, "test")
        return make_plan(study, model, assumptions).hours["expected"]

    model = find_architecture(PretrainedModel(kind="pretrained", path="Qwen/Qwen3-1.7B"))
    base, longer = hours(), hours(training=STUDY["training"] | {"max_new_tokens": length + 192, "steps": steps})
    assert base.rollout < longer.rollout and base.update < longer.update and base.evaluation < longer.evaluation
    assert hours(Assumptions(mean_length=share)).update <= hours(Assumptions(mean_length=1)).update
    assert hours(Assumptions(utilization=0.2)).update > base.update


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"training__max_new_tokens": 40_000},
            "training.max_new_tokens = 40000: at most 39936 with prompts of up to 1024 tokens, since the model has",
        ),
        (
            {"evaluation": {"every": 50, "max_new_tokens": 40_000}},
            "evaluation.max_new_tokens = 40000: at most 39936 with prompts",
        ),
        (
            {"data__benchmarks": [{"kind": "math-500", "max_new_tokens": 50_000}]},
            "max_new_tokens of benchmark math-500 = 50000: at most 39936",
        ),
        (
            {"data__max_prompt_tokens": 50_000, "training__max_new_tokens": 1},
            "training.max_new_tokens = 1: no length is possible with prompts of up to 50000 tokens",
        ),
        (
            {"rollout__tensor_parallel": 3, "compute__gpus_per_node": 6},
            "rollout.tensor_parallel = 3: must divide the model's 16 attention heads",
        ),
        (
            {"rollout__tensor_parallel": 3, "compute__gpus_per_node": 6},
            "rollout.tensor_parallel = 3: must divide the model's 8 KV heads, or be a multiple of them",
        ),
        (
            {"rollout__tensor_parallel": 5, "compute__gpus_per_node": 5},
            "rollout.tensor_parallel = 5: must divide the model's intermediate size 6144",
        ),
        (
            {"rollout__memory_share": 0.08},
            "rollout.memory_share = 0.08: the KV cache has 0.00 GB in rollout and cannot hold one sequence of 9216",
        ),
        (
            {"compute": {"gpus_per_node": 0}, "training__max_new_tokens": 9000},
            "rollout.cpu_cache_gib = 1: the KV cache has 1.07 GB in rollout and cannot hold one sequence of 10024",
        ),
        (
            {"compute": {"gpus_per_node": 0}, "model": {"kind": "pretrained", "path": "HEADS_OF_24"}},
            "rollout.engine = 'vllm': on CPUs it has no head size 24; allowed: 32, 64, 80,",
        ),
        (
            {"training__prompts_per_step": 60_000},
            "training.prompts_per_step = 60000: at most the 53291 problems of data.train",
        ),
        (
            {"compute__gpu_memory_gb": 15},
            "compute.gpu_memory_gb = 15: does not fit: update (backward of a layer) needs ",
        ),
        (
            {"rollout__memory_share": 0.97},
            "compute.gpu_memory_gb = 80: does not fit: rollout (sampling) needs ",
        ),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused(values, message, tmp_path, monkeypatch, capsys):
    small("qwen3").config.save_pretrained(tmp_path / "HEADS_OF_24")
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(changed(**values)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["balagg", "plan", "study.yaml"])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    assert isinstance(exit_.value.code, str)  # printed to stderr, exit code 1
    lines = exit_.value.code.removeprefix("error: ").split("\n")
    assert any(line.startswith(message) for line in lines), lines
    assert "planned" in capsys.readouterr().out, "the tables are printed all the same"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"training__micro_batch_tokens": 4096}, "training.micro_batch_tokens = 4096: the longest response, 9216"),
        ({"training__mini_batches": 128, "compute__nodes": 2}, "training.mini_batches = 128: 8 responses of a mini"),
        ({"compute__nodes": 200}, "training.prompts_per_step = 128: there are fewer responses than engines (1600)"),
        ({"rollout__memory_share": 0.2}, "training.rollout_batch_size = 256: the KV cache holds 9 responses of full"),
        ({"compute__dtype": "float32"}, "compute.dtype = 'float32': a GPU is many times as fast"),
        ({"compute__nodes": 8, "training__mini_batches": 32}, "training.micro_batch_tokens = 16384: updates wait for"),
    ],
)  # fmt: skip
def test_what_is_likely_not_meant_is_said(values, message):
    assert any(warning.startswith(message) for warning in plan_of(**values).warnings), plan_of(**values).warnings
    assert not any(warning.startswith(message) for warning in plan_of().warnings)


def test_one_response_larger_than_the_budget_has_its_memory():
    tight, roomy = plan_of(training__micro_batch_tokens=4096), plan_of(training__micro_batch_tokens=9216)
    assert tight.micro_batch == roomy.micro_batch == 9216
    assert [m.total for m in tight.moments] == [m.total for m in roomy.moments]


def test_the_longest_sequence_of_a_tiny_model():
    study = load_study(ROOT / "config.yaml")
    # A start, four further numbers with their signs, "=": 10 characters, and 96 tokens of response.
    assert longest_sequence(study, "train") == longest_sequence(study, "long-chains") == 106
    assert position_problems(study, 106) == []
    (problem,) = position_problems(study, 105)
    assert problem.startswith("training.max_new_tokens = 96: at most 95 with prompts of up to 10 tokens")


@pytest.mark.parametrize("file", ["config.yaml", "gpu"])
def test_the_command(file, tmp_path, monkeypatch, capsys):
    path = ROOT / file
    if file == "gpu":
        path = tmp_path / "study.yaml"
        path.write_text(yaml.safe_dump(STUDY))
    numbers = tmp_path / "plan.json"
    monkeypatch.setattr("sys.argv", ["balagg", "plan", str(path), "--json", str(numbers), "--mean-length", "0.25"])
    cli.main()
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) < 100
    assert "--mean-length 0.25" in printed
    found = json.loads(numbers.read_text())
    assert found["assumptions"]["mean_length"] == 0.25
    (plan,) = found["plans"]
    assert all(m["total"] == pytest.approx(sum(m["items"].values())) for m in plan["memory_bytes"])
    on_gpus = file == "gpu"
    assert plan["device"] == ("GPU" if on_gpus else "process")
    assert {m["fits"] for m in plan["memory_bytes"]} == {True if on_gpus else None}
    assert ("in 80 GB" in printed, "CPU study" in printed) == (on_gpus, not on_gpus)


def test_variants_are_planned_one_by_one_and_together(monkeypatch, capsys, tmp_path):
    studies = [parse_study(changed(**values), "test") for values in ({}, {"training__max_new_tokens": 60_000})]
    monkeypatch.setattr(cli, "load_studies", lambda path: studies)
    numbers = tmp_path / "plan.json"
    monkeypatch.setattr("sys.argv", ["balagg", "plan", "any.yaml", "--json", str(numbers)])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    assert exit_.value.code.startswith("error: planned: training.max_new_tokens = 60000: at most 39936")
    printed = capsys.readouterr().out
    plans = json.loads(numbers.read_text())["plans"]
    assert [len(plan["problems"]) for plan in plans] == [0, 1]
    *_, last = printed[printed.index("all variants") : printed.index("assumed")].split()
    total = sum(hours for plan in plans for hours in plan["device_hours"]["worst"]["study"].values())
    assert last == f"{total:,.0f}"


def test_raised_positions_count():
    model = PretrainedModel(kind="pretrained", path="Qwen/Qwen2.5-Math-7B")
    assert find_architecture(model).positions == 4096
    assert find_architecture(model.model_copy(update={"max_positions": 32_768})).positions == 32_768


def test_meaningless_assumptions_are_refused(monkeypatch):
    flags = ["--mean-length", "0", "--bandwidth-gbs", "-1", "--reserve-gb", "nan"]
    monkeypatch.setattr("sys.argv", ["balagg", "plan", str(ROOT / "config.yaml"), *flags])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    assert exit_.value.code.split("\n") == [
        "error: --mean-length 0.0: a share, above 0 and at most 1",
        "--bandwidth-gbs -1.0: must be above 0",
        "--reserve-gb nan: must not be negative",
    ]
