import copy
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from balanced_aggregation.aggregation import RULES, checked_rule
from balanced_aggregation.checkpoints import checkpoint_folder
from balanced_aggregation.config import Training
from balanced_aggregation.errors import UserError
from balanced_aggregation.models import end_token_ids
from balanced_aggregation.rewards import Outcome, Verdict, VerifierPool
from balanced_aggregation.rewards.pool import INLINE
from balanced_aggregation.rewards.responses import ResponseVerifier
from balanced_aggregation.rollout import Response
from balanced_aggregation.rollout.transformers_engine import TransformersEngine
from balanced_aggregation.training import checkpoint as checkpoint_module
from balanced_aggregation.training.journal import Journal, read_journal
from balanced_aggregation.training.loop import Task, Trainer, run_training
from balanced_aggregation.training.policy import Policy
from balanced_aggregation.training.sampler import PromptSampler
from oracle import oracle_log_probs, oracle_loss, oracle_weights

PROBLEMS = pd.DataFrame(
    {
        "prompt": [f"{a}+{b}=" for a in range(5) for b in range(5)],
        "gold": [str(a + b) for a in range(5) for b in range(5)],
        "tolerance": float("nan"),
        "verifier": "arithmetic",
    }
)


def parity(text):
    """A random model never answers correctly; by this measure about half of its responses are good."""
    return sum(map(ord, text)) % 2


INLINE["parity"] = lambda response, gold: Verdict(Outcome.EQUAL if parity(response) else Outcome.NOT_EQUAL, None)
WITH_SIGNAL = PROBLEMS.assign(verifier="parity")
SETTINGS = Training(
    steps=7, prompts_per_step=3, group_size=4, learning_rate=3e-3, max_new_tokens=6, checkpoint_every=3,
    micro_batch_tokens=40,
)  # fmt: skip
FINGERPRINT = {"settings": "abc"}


class CorrectNowAndThen:
    """An engine whose responses are right or wrong as a test needs them; log-probabilities are made up."""

    def __init__(self, tokenizer, texts, truncated=()):
        self.tokenizer, self.texts, self.truncated = tokenizer, texts, truncated

    def generate(self, prompts, seeds, sampling, finished=lambda place, response: None):
        responses = []
        for own in seeds:
            for j in range(len(own)):
                ids = [*self.tokenizer.encode(self.texts[j]), self.tokenizer.eos_token_id]
                responses.append(Response(ids, [-1.0] * len(ids), truncated=j in self.truncated))
                finished(len(responses) - 1, responses[-1])
        return responses

    def update_weights(self, weights):
        pass


def make_trainer(make_model, tokenizer, *, rule="balanced", seed=0, settings=SETTINGS, engine=None, problems=PROBLEMS):
    reference = Policy(make_model()) if settings.kl_coefficient else None
    task = Task(settings, seed, dict(RULES), rule, problems.copy(), evaluated_steps=[4, settings.steps])
    model = make_model()
    engine = engine or own_engine(model, tokenizer, settings)
    return Trainer(task, Policy(model), tokenizer, VerifierPool(), engine, reference)


def own_engine(model, tokenizer, settings):
    ends = end_token_ids(model, tokenizer)
    return TransformersEngine(model, ends, tokenizer.pad_token_id, settings.rollout_batch_size)


def weights(policy):
    return torch.cat([p.detach().flatten() for p in policy.parameters()])


def contents(folder):
    """Every file that a training leaves, but for times, and the index that gives each checkpoint an id of its own."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("timing.jsonl", ".metadata")
    }


def test_a_step_is_the_same_again_and_another_seed_samples_differently(make_model, tokenizer):
    rows = [repr(make_trainer(make_model, tokenizer, seed=seed).step()[0]) for seed in (0, 0, 1)]
    assert rows[0] == rows[1]
    assert rows[0] != rows[2]


def test_rules_see_the_same_prompts_and_start_with_the_same_samples(make_model, tokenizer):
    asked = {}
    for rule in ("token", "sequence"):
        trainer = make_trainer(make_model, tokenizer, rule=rule)
        generate = trainer.engine.generate
        seen = []

        def recording(prompts, *rest, generate=generate, seen=seen):
            responses = generate(prompts, *rest)
            seen.append((prompts, [r.token_ids for r in responses]))
            return responses

        trainer.engine.generate = recording
        for _ in range(3):
            trainer.step()
        asked[rule] = seen
    assert [prompts for prompts, _ in asked["token"]] == [prompts for prompts, _ in asked["sequence"]]
    assert asked["token"][0] == asked["sequence"][0]


def test_the_sampler_sees_every_problem_once_an_epoch():
    sampler = PromptSampler(10, 4, seed=3)
    drawn = [i for _ in range(5) for i in sampler.next()]
    assert sorted(drawn[:10]) == sorted(drawn[10:]) == list(range(10))
    assert drawn[:10] != drawn[10:]
    again = PromptSampler(10, 4, seed=3)
    again.restore({"drawn": 8})
    assert again.next() == drawn[8:12]


def test_reward_goes_up_when_it_can(make_model, tokenizer):
    """One right and one wrong answer in each group: the right one becomes likelier under every rule."""
    engine = CorrectNowAndThen(tokenizer, [">4", ">12;", ">12;", ">12;"])
    problems = PROBLEMS.assign(gold="4")
    for rule in RULES:
        model = make_model()
        task = Task(SETTINGS, 0, dict(RULES), rule, problems, [])
        trainer = Trainer(task, Policy(model), tokenizer, VerifierPool(), engine)
        prompt, good = tokenizer.encode("1+3="), tokenizer.encode(">4")

        def likelihood(model=model, prompt=prompt, good=good):
            with torch.no_grad():
                logits = model(torch.tensor([prompt + good])).logits[0].log_softmax(-1)
            return float(logits[len(prompt) - 1, good[0]] + logits[len(prompt), good[1]])

        before = likelihood()
        for _ in range(3):
            metrics, _ = trainer.step()
        assert likelihood() > before + 0.1, rule
        assert metrics["reward"] == 0.25


def test_groups_of_equal_rewards_change_nothing(make_model, tokenizer):
    for texts in ([">1"] * 4, [">0", ">0;", ">0", ">0"]):
        trainer = make_trainer(make_model, tokenizer, engine=CorrectNowAndThen(tokenizer, texts))
        trainer.task.problems["gold"] = "9"
        before = weights(trainer.policy)
        metrics, _ = trainer.step()
        assert metrics["grad_norm"] == 0.0 and metrics["zero_variance_groups"] == 1.0
        assert torch.equal(weights(trainer.policy), before)


@pytest.mark.parametrize("mask", [False, True])
def test_truncated_responses_are_kept_or_leave_numerator_and_denominator(make_model, tokenizer, mask):
    """A masked response is as if its group had never had it: in the weights, and in the advantages."""
    settings = SETTINGS.model_copy(update={"mask_truncated": mask, "normalize_std": False})
    engine = CorrectNowAndThen(tokenizer, [">1", ">2", ">3;3+3", ">1"], truncated={2})
    trainer = make_trainer(make_model, tokenizer, settings=settings, engine=engine)
    prompts = [[3, 4], [5], [6]]
    responses = engine.generate(prompts, [range(4)] * len(prompts), None)
    verdicts = [Verdict(Outcome.EQUAL if j == 0 else Outcome.NOT_EQUAL, None) for _ in prompts for j in range(4)]
    batch, _ = trainer._batch(prompts, responses, verdicts)
    weights = RULES["token"](batch.lengths, batch.advantages, batch.group_ids)
    kept = [3, 3, 7, 3]
    if mask:
        assert batch.lengths.tolist() == [3, 3, 0, 3] * 3
        assert weights.tolist() == pytest.approx([1 / 27, 1 / 27, 0, 1 / 27] * 3)
        assert batch.advantages.tolist() == pytest.approx([2 / 3, -1 / 3, 0, -1 / 3] * 3)
    else:
        assert batch.lengths.tolist() == kept * 3
        assert weights.tolist() == pytest.approx([1 / 48] * 12)
        assert batch.advantages.tolist() == pytest.approx([3 / 4, -1 / 4, -1 / 4, -1 / 4] * 3)


def test_everything_truncated_and_masked_still_trains_on(make_model, tokenizer):
    settings = SETTINGS.model_copy(update={"mask_truncated": True, "max_new_tokens": 1})
    trainer = make_trainer(
        make_model, tokenizer, settings=settings, engine=CorrectNowAndThen(tokenizer, [">1"] * 4, {0, 1, 2, 3})
    )
    before = weights(trainer.policy)
    metrics, _ = trainer.step()
    assert metrics["truncated"] == 1.0 and metrics["grad_norm"] == 0.0
    assert torch.equal(weights(trainer.policy), before)


def test_one_group_is_enough(make_model, tokenizer):
    settings = SETTINGS.model_copy(update={"prompts_per_step": 1})
    for rule in RULES:
        metrics, _ = make_trainer(make_model, tokenizer, rule=rule, settings=settings).step()
        assert metrics["step"] == 1


def test_the_on_policy_update_needs_one_forward_pass(make_model, tokenizer, monkeypatch):
    """And further updates of the same rollout take their old log-probabilities from before the first."""
    import balanced_aggregation.training.loop as loop

    calls = []
    original = loop.log_probs_by_response
    monkeypatch.setattr(loop, "log_probs_by_response", lambda *a, **k: calls.append(1) or original(*a, **k))
    make_trainer(make_model, tokenizer).step()
    assert calls == []
    settings = SETTINGS.model_copy(update={"mini_batches": 3, "epochs": 2})
    trainer = make_trainer(make_model, tokenizer, settings=settings)
    trainer.step()
    assert len(calls) == 2 and trainer.progress.updates == 6


def test_later_epochs_keep_the_old_log_probs_of_the_sampling_policy(make_model, tokenizer, monkeypatch):
    import balanced_aggregation.training.loop as loop

    seen = []
    original = loop.accumulate_gradients

    def recording(policy, batch, weights, settings, old, *rest):
        result = original(policy, batch, weights, settings, old, *rest)
        seen.append((old, result.log_probs))
        return result

    monkeypatch.setattr(loop, "accumulate_gradients", recording)
    engine = CorrectNowAndThen(tokenizer, [">1", ">2", ">3", ">4"])
    settings = SETTINGS.model_copy(update={"epochs": 3, "learning_rate": 1e-2})
    trainer = make_trainer(make_model, tokenizer, settings=settings, engine=engine)
    trainer.task.problems["gold"] = "1"
    trainer.step()
    first = seen[0][1]
    assert seen[0][0] is None
    for old, found in seen[1:]:
        assert all(torch.equal(a, b) for a, b in zip(old, first, strict=True))
        assert not torch.equal(found[0], first[0])


def test_kl_keeps_the_policy_near_its_reference(make_model, tokenizer):
    engine = CorrectNowAndThen(tokenizer, [">1", ">2", ">3", ">4"])
    kl = {}
    for coefficient in (1e-6, 3.0):
        settings = SETTINGS.model_copy(update={"kl_coefficient": coefficient, "learning_rate": 1e-2})
        trainer = make_trainer(make_model, tokenizer, settings=settings, engine=engine)
        trainer.task.problems["gold"] = "1"
        rows = [trainer.step()[0] for _ in range(8)]
        assert rows[0]["kl"] == pytest.approx(0, abs=1e-9)
        kl[coefficient] = rows[-1]["kl"]
    assert 0 < kl[3.0] < kl[1e-6] / 3


def test_learning_rate_warms_up(make_model, tokenizer):
    settings = SETTINGS.model_copy(update={"warmup_steps": 4})
    trainer = make_trainer(make_model, tokenizer, settings=settings)
    rates = [trainer.step()[0]["learning_rate"] for _ in range(6)]
    assert rates == pytest.approx([3e-3 / 4, 3e-3 / 2, 9e-3 / 4, 3e-3, 3e-3, 3e-3])


def moving_trainer(make_model, tokenizer, settings=SETTINGS):
    """A training in which every part of the state matters: several updates a step, KL, and rewards that differ."""
    settings = settings.model_copy(update={"mini_batches": 3, "epochs": 2, "kl_coefficient": 0.1, "warmup_steps": 20})
    return make_trainer(make_model, tokenizer, settings=settings, problems=WITH_SIGNAL)


def test_stopped_anywhere_and_resumed_is_bit_identical(make_model, tokenizer, tmp_path):
    whole = tmp_path / "whole"
    trainer = moving_trainer(make_model, tokenizer)
    run_training(trainer, whole, FINGERPRINT, [])
    expected = contents(whole)
    for row in read_journal(whole / "state" / "metrics.jsonl"):
        assert row["grad_norm"] > 0 and row["kl"] >= 0 and row["engine_mismatch"] < 1e-5
    assert (weights(trainer.policy) - weights(make_model())).abs().max() > 1e-3
    assert [row["step"] for row in read_journal(whole / "state" / "metrics.jsonl")] == list(range(1, 8))
    assert checkpoint_folder(whole, 4).is_dir() and checkpoint_folder(whole, 7).is_dir()

    class Stop(BaseException):
        pass

    class StopAt:
        def __init__(self, step):
            self.step = step

        def on_step(self, metrics, timing):
            if metrics["step"] == self.step:
                raise Stop

    for stops in ([1], [3], [4], [7], [2, 5, 6]):
        folder = tmp_path / f"stopped_{stops}"
        for stop in stops:
            with pytest.raises(Stop):
                run_training(moving_trainer(make_model, tokenizer), folder, FINGERPRINT, [StopAt(stop)])
        run_training(moving_trainer(make_model, tokenizer), folder, FINGERPRINT, [])
        assert contents(folder) == expected, stops
    again = run_training(moving_trainer(make_model, tokenizer), whole, FINGERPRINT, [])
    assert contents(whole) == expected and again == whole / "state"


def test_a_crash_while_a_checkpoint_is_written_leaves_the_older_one(make_model, tokenizer, tmp_path, monkeypatch):
    run_training(moving_trainer(make_model, tokenizer), tmp_path / "whole", FINGERPRINT, [])
    save, calls = checkpoint_module.dcp.save, []

    def failing(*args, **kwargs):
        calls.append(1)
        if len(calls) == 2:  # of the second checkpoint
            raise OSError("disk full")
        save(*args, **kwargs)

    monkeypatch.setattr(checkpoint_module.dcp, "save", failing)
    with pytest.raises(OSError, match="disk full"):
        run_training(moving_trainer(make_model, tokenizer), tmp_path / "crashed", FINGERPRINT, [])
    resume = tmp_path / "crashed" / "state" / "resume"
    assert [p.name for p in resume.glob("step_*")] == ["step_000003"]
    run_training(moving_trainer(make_model, tokenizer), tmp_path / "crashed", FINGERPRINT, [])
    assert contents(tmp_path / "crashed") == contents(tmp_path / "whole")


def test_a_lost_model_is_made_again(make_model, tokenizer, tmp_path):
    run_training(moving_trainer(make_model, tokenizer), tmp_path, FINGERPRINT, [])
    before = contents(tmp_path)
    shutil.rmtree(checkpoint_folder(tmp_path, 4))
    run_training(moving_trainer(make_model, tokenizer), tmp_path, FINGERPRINT, [])
    assert {name: data for name, data in contents(tmp_path).items() if "superseded" not in name} == before


def test_another_training_does_not_go_on_from_it(make_model, tokenizer, tmp_path):
    run_training(make_trainer(make_model, tokenizer), tmp_path, FINGERPRINT, [])
    before = contents(tmp_path)
    trainer = make_trainer(make_model, tokenizer, seed=5)
    run_training(trainer, tmp_path, {"settings": "other"}, [])
    after = contents(tmp_path)
    assert after["state/metrics.jsonl"] != before["state/metrics.jsonl"]
    assert {name.removeprefix("superseded/"): data for name, data in after.items() if "superseded" in name} == before


def test_the_journal_refuses_what_does_not_fit_its_checkpoint(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with pytest.raises(UserError, match="ends at step 0, the checkpoint beside it is at step 2"):
        Journal(path, 2)
    path.write_text('{"step": 1}\n{"step": 3}\n')
    with pytest.raises(UserError, match="line 2 is not step 2"):
        Journal(path, 2)
    path.write_text('{"step": 1}\n{"step": 2}\n{"st')
    journal = Journal(path, 1)
    journal.append({"step": 2, "value": float("nan")})
    journal.close()
    assert read_journal(path) == [{"step": 1}, {"step": 2, "value": None}]


def test_a_diverged_training_says_so(make_model, tokenizer, tmp_path, monkeypatch):
    engine = CorrectNowAndThen(tokenizer, [">1", ">2", ">3", ">4"])
    trainer = make_trainer(make_model, tokenizer, engine=engine)
    with torch.no_grad():
        trainer.policy.model.lm_head.weight[3, 3] = float("inf")
    trainer.task.problems["gold"] = "1"
    with pytest.raises(UserError, match="training diverged at step 1: gradient norm is nan"):
        run_training(trainer, tmp_path, FINGERPRINT, [])


_KILLED = """
import sys, time, torch
sys.path.insert(0, {tests!r})
torch.set_num_threads(1)
import test_training as t
from balanced_aggregation.config import TinyModel
from balanced_aggregation.data.arithmetic import SYMBOLS
from balanced_aggregation.models import character_tokenizer, create_tiny_model
tokenizer = character_tokenizer(SYMBOLS)
config = TinyModel(hidden_size=16, layers=2, heads=2, intermediate_size=24)
make = lambda seed=0: create_tiny_model(config, tokenizer, seed).eval()
settings = t.SETTINGS.model_copy(update=dict(steps=40, checkpoint_every=1))
print("ready", flush=True)
t.run_training(t.moving_trainer(make, tokenizer, settings), t.Path({folder!r}), t.FINGERPRINT, [])
print("done", flush=True)
"""


@pytest.mark.slow
def test_sigkill_at_random_moments(tmp_path):
    """With a checkpoint after every step, most kills fall into the writing of one."""

    def start(folder):
        code = _KILLED.format(tests=str(Path(__file__).parent), folder=str(folder))
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "ready\n"
        return process

    undisturbed = start(tmp_path / "whole")
    assert undisturbed.communicate(timeout=300)[0] == "done\n"
    folder, kills = tmp_path / "killed", 0
    for delay in (0.35, 0.8, 0.15, 1.3, 0.55):
        process = start(folder)
        time.sleep(delay)
        os.kill(process.pid, signal.SIGKILL)
        kills += "done" not in process.communicate()[0]
    assert kills >= 3
    assert start(folder).communicate(timeout=300)[0] == "done\n"
    leftovers = [p for p in folder.rglob(".*.partial")]
    assert leftovers == []
    assert contents(folder) == contents(tmp_path / "whole")
    steps = [json.loads(line)["step"] for line in (folder / "state" / "metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(1, 41))


def test_checkpoints_hold_every_random_generator(make_model, tokenizer, tmp_path):
    def draw():
        return random.random(), random.gauss(), np.random.rand(), np.random.randn(), *torch.rand(2), torch.randn(())

    trainer = make_trainer(make_model, tokenizer)
    trainer.step()
    parts = trainer.policy, trainer.optimizer, trainer.sampler
    draw()
    checkpoint_module.save_checkpoint(tmp_path, *parts, trainer.progress)
    expected = draw()
    draw()
    checkpoint_module.restore_checkpoint(tmp_path, *parts)
    assert draw() == expected


@pytest.mark.parametrize("normalize_std", [True, False])
@pytest.mark.parametrize("rule", sorted(RULES))
def test_the_updates_of_a_step_are_those_of_the_oracle(make_model, tokenizer, monkeypatch, rule, normalize_std):
    """From what the engine was asked and answered to the gradient of each mini-batch, by independent arithmetic."""
    import balanced_aggregation.training.loop as loop

    settings = SETTINGS.model_copy(
        update={"prompts_per_step": 4, "mini_batches": 2, "normalize_std": normalize_std, "temperature": 0.9}
    )
    trainer = make_trainer(
        lambda: make_model(dtype=torch.float64), tokenizer, rule=rule, settings=settings, problems=WITH_SIGNAL
    )
    initial = copy.deepcopy(trainer.policy.model)
    generate, apply_update, asked, updates = trainer.engine.generate, loop.apply_update, [], []

    def recording_generate(prompts, seeds, *rest):
        responses = generate(prompts, seeds, *rest)
        asked.extend((prompts[i // len(seeds[0])], response.token_ids) for i, response in enumerate(responses))
        return responses

    def recording_update(policy, optimizer, *rest):
        gradient = torch.cat([p.grad.flatten() for p in policy.parameters()])
        updates.append((copy.deepcopy(policy.model), gradient.clone()))
        return apply_update(policy, optimizer, *rest)

    trainer.engine.generate = recording_generate
    monkeypatch.setattr(loop, "apply_update", recording_update)
    metrics, _ = trainer.step()
    assert len(updates) == 2 and len(asked) == 16
    assert metrics["engine_mismatch"] < 1e-6

    texts = [tokenizer.decode(ids[:-1] if ids[-1] == tokenizer.eos_token_id else ids) for _, ids in asked]
    rewards = [float(parity(text)) for text in texts]
    assert 0 < sum(rewards) < 16
    for half, (model, gradient) in enumerate(updates):
        part = range(8 * half, 8 * half + 8)
        advantages = []
        for i in part:
            group = rewards[i // 4 * 4 : i // 4 * 4 + 4]
            mean = sum(group) / 4
            std = (sum((r - mean) ** 2 for r in group) / 3) ** 0.5
            advantages.append((rewards[i] - mean) / (std + 1e-6 if normalize_std else 1))
        prompts, responses = ([torch.tensor(asked[i][k]) for i in part] for k in (0, 1))
        lengths = [len(r) for r in responses]
        rule_weights = oracle_weights(rule, lengths, advantages, [i // 4 for i in part])
        with torch.no_grad():
            old = [oracle_log_probs(initial, p, r, 0.9) for p, r in zip(prompts, responses, strict=True)]
        model.zero_grad()
        oracle_loss(
            model, prompts, responses, rule_weights, lengths, advantages,
            temperature=0.9, clip=(0.2, 0.2), old=old, kl=0, reference=None,
        ).backward()  # fmt: skip
        expected = torch.cat([p.grad.flatten() for p in model.parameters()])
        assert expected.abs().max() > 0
        torch.testing.assert_close(gradient, expected, rtol=1e-8, atol=1e-12)


def test_what_stands_behind_a_special_token_inside_a_response_is_not_hidden(tokenizer):
    ids = [*tokenizer.encode(">1"), tokenizer.pad_token_id, *tokenizer.encode("4"), tokenizer.eos_token_id]
    problems = pd.DataFrame({"gold": ["14"], "tolerance": [float("nan")], "verifier": ["arithmetic"]})

    def verdict(response):
        verifier = ResponseVerifier(VerifierPool(), tokenizer, problems, 1)
        verifier.begin(0, response)
        return verifier.verdicts()[0]

    for truncated in (False, True):
        assert verdict(Response(ids, [0.0] * len(ids), truncated)).outcome is Outcome.NO_ANSWER
    good = [*tokenizer.encode(">14"), tokenizer.eos_token_id]
    assert verdict(Response(good, [0.0] * 4, False)).correct


def test_a_rule_that_breaks_its_contract_in_the_middle_stops_with_a_reason(make_model, tokenizer, tmp_path):
    def mine(lengths, advantages, group_ids):
        return lengths * float("nan")

    trainer = make_trainer(make_model, tokenizer)
    trainer.task.rules["balanced"] = checked_rule(mine)
    with pytest.raises(UserError, match="stopped at step 1: weights of rule 'mine' must be finite"):
        run_training(trainer, tmp_path, FINGERPRINT, [])
