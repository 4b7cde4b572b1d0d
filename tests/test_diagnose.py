import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import rollout_logs
from balanced_aggregation.aggregation import RULES
from balanced_aggregation.commands.diagnose import diagnose as command
from balanced_aggregation.diagnose import analysis
from balanced_aggregation.diagnose.degenerate import EXIT_CODE
from balanced_aggregation.diagnose.diagnosis import diagnose
from balanced_aggregation.diagnose.log import read_log
from balanced_aggregation.diagnose.options import Options
from balanced_aggregation.diagnose.report import plain, to_json
from balanced_aggregation.diagnostics import length_statistics, update_mass
from balanced_aggregation.errors import UserError
from rollout_logs import batches, rollouts, write_jsonl

ROWS = rollouts()


def positive_shares(rows):
    """By rule, the mean over steps: what `diagnose` should find, from the rules themselves."""
    shares = {}
    for name, rule in RULES.items():
        limits = {"max_length": max(r.length for r in rows)} if name == "constant" else {}
        of_step = []
        for lengths, advantages, groups in batches(rows):
            mass = update_mass(rule(lengths, advantages, groups, **limits), lengths, advantages)
            of_step.append(float(mass[advantages > 0].sum() / mass.sum()))
        shares[name] = sum(of_step) / len(of_step)
    return shares


def found_shares(diagnosis):
    return {name: numbers.positive_share for name, numbers in diagnosis.analysis.rules.items()}


@pytest.mark.parametrize("form, suffix, name, steps", [
    ("verl", "jsonl", "a verl generations dump", 2),
    ("trl", "parquet", "a TRL completions log", 2),
    ("areal", "jsonl", "AReaL rollouts", None),
    ("evaluation", "parquet", "an evaluation by balagg", None),
])  # fmt: skip
def test_every_format_gives_the_numbers_of_the_batch(tmp_path, form, suffix, name, steps):
    path = getattr(rollout_logs, form)(tmp_path / f"log.{suffix}", ROWS)
    found = diagnose([path], Options())
    assert (found.log.columns.format, found.analysis.steps, found.analysis.updates) == (name, steps, steps or 1)
    assert (found.analysis.responses, found.analysis.groups, found.findings) == (len(ROWS), 24, {})
    assert found.analysis.group_size.smallest == found.analysis.group_size.largest == 6
    expected = positive_shares(ROWS)
    if not steps:  # the whole log is one batch, to which the longer step contributes more under this rule
        del expected["token_batch"]
    assert {rule: found_shares(found)[rule] for rule in expected} == pytest.approx(expected, rel=1e-5)
    statistics = [length_statistics(*batch) for batch in batches(ROWS)]
    assert found.analysis.variation.mean == pytest.approx(sum(s["variation"] for s in statistics) / 2, rel=1e-5)
    assert found.analysis.gap.mean == pytest.approx(sum(s["gap"] for s in statistics) / 2, rel=1e-5)
    assert found.log.truncated == (sum(r.length > 65 for r in ROWS) if form == "evaluation" else None)
    assert any("characters" in note for note in found.log.notes) == (form in ("verl", "trl"))


def test_trl_rewards_are_the_reward_functions(tmp_path):
    found = diagnose([rollout_logs.trl(tmp_path / "log.parquet", ROWS)], Options())
    assert found.log.columns.reward == ("accuracy_reward", "format_reward")
    assert found.analysis.reward == pytest.approx(sum(r.reward for r in ROWS) / len(ROWS) + 0.5)


def test_scattered_groups_and_parts_of_a_batch_change_nothing(tmp_path, monkeypatch):
    shuffled = random.Random(1).sample(ROWS, len(ROWS))
    straight = diagnose([rollout_logs.verl(tmp_path / "a.jsonl", ROWS)], Options()).analysis
    scattered = diagnose([rollout_logs.verl(tmp_path / "b.jsonl", shuffled)], Options()).analysis
    monkeypatch.setattr(analysis, "BATCH_RESPONSES", 20)
    parts = diagnose([tmp_path / "a.jsonl"], Options()).analysis
    assert parts.updates > straight.updates == 2
    for other in (scattered, parts):
        assert (other.groups, other.zero_variance, other.lengths_by_sign) == (
            straight.groups, straight.zero_variance, straight.lengths_by_sign)  # fmt: skip
        for rule in ("sequence", "token", "balanced", "constant", "length_power"):
            one, two = straight.rules[rule], other.rules[rule]
            assert two.positive_share == pytest.approx(one.positive_share, abs=1e-6 if other is scattered else 1e-3)
            assert (two.sign_bias, two.sign_error, two.length_bias) == pytest.approx(
                (one.sign_bias, one.sign_error, one.length_bias))  # fmt: skip
    assert scattered.distances == pytest.approx(straight.distances)


def test_files_separate_groups_unless_steps_or_the_person_say_otherwise(tmp_path):
    rows = [{"prompt": "p", "reward": i % 2, "length": 3 + i} for i in range(4)]
    files = [write_jsonl(tmp_path / name, rows) for name in ("a.jsonl", "b.jsonl")]
    assert diagnose(files, Options()).analysis.groups == 2
    assert diagnose(files, Options(files_share_groups=True)).analysis.groups == 1
    files = [write_jsonl(path, [row | {"step": 7} for row in rows]) for path in files]
    assert diagnose(files, Options()).analysis.groups == 1
    write_jsonl(files[1], [row | {"step": 8} for row in rows])
    assert diagnose(files, Options()).analysis.groups == 2


def test_columns_by_flags(tmp_path):
    rows = [{"a": r.problem, "b": r.step, "won": r.reward, "bonus": 0.0, "ids": [1] * r.length,
             "why": "length" if i < 9 else "stop"}
            for i, r in enumerate(ROWS)]  # fmt: skip
    path = write_jsonl(tmp_path / "log.jsonl", rows)
    options = Options(group=("a", "b"), reward=("won", "bonus"), length="ids", truncated="why")
    found = diagnose([path], options)
    assert (found.analysis.groups, found.log.truncated) == (24, 9)
    assert found_shares(found)["token"] == pytest.approx(positive_shares(ROWS)["token"], rel=1e-4)
    longest = max(r.length for r in ROWS)
    by_limit = diagnose([path], Options(group=("a", "b"), reward=("won",), length="ids", max_length=longest))
    assert by_limit.log.truncated == sum(r.length == longest for r in ROWS)


def test_a_tokenizer_counts(tmp_path):
    from balanced_aggregation.models import character_tokenizer

    character_tokenizer("x").save_pretrained(tmp_path / "tokenizer")
    path = rollout_logs.verl(tmp_path / "log.jsonl", ROWS)
    found = diagnose([path], Options(tokenizer=tmp_path / "tokenizer"))
    assert found.analysis.length.largest == max(r.length for r in ROWS)
    assert "tokens" in found.log.notes[0]
    with pytest.raises(UserError, match=r"--tokenizer .*cannot be loaded"):
        diagnose([path], Options(tokenizer=tmp_path))


def test_recorded_advantages_without_rewards(tmp_path):
    rows = [{"group": g, "length": 5 + i, "advantage": a}
            for g, values in enumerate([(1.0, -1.0), (2e-4, -2e-4)]) for i, a in enumerate(values)]  # fmt: skip
    found = diagnose([write_jsonl(tmp_path / "log.jsonl", rows)], Options())
    assert (found.analysis.zero_variance, found.analysis.positive) == (0.5, 1)
    assert found_shares(found)["token"] == pytest.approx(5 / 11)
    with_rewards = [row | {"reward": 1.0} for row in rows]  # equal rewards: what differs is residue, however large
    degenerate = diagnose([write_jsonl(tmp_path / "equal.jsonl", with_rewards)], Options())
    assert "zero_variance" in degenerate.findings


# -- what the words say


def test_where_wrong_answers_are_longer_token_is_biased(tmp_path):
    rows = rollouts(groups=40, positive=40, negative=80, spread=0, steps=1)
    found = diagnose([rollout_logs.verl(tmp_path / "log.jsonl", rows)], Options())
    token, sequence = found.analysis.rules["token"], found.analysis.rules["sequence"]
    assert token.sign_bias < -0.1 and abs(sequence.sign_bias) < 1e-9 and abs(sequence.length_bias) < 1e-9
    assert "negative responses are longer" in found.verdict
    assert "Length bias" not in found.verdict
    assert "strong under token, token_batch and constant" in found.verdict
    assert "No bias to speak of under sequence and balanced" in found.verdict


def test_where_only_lengths_vary_sequence_is_biased(tmp_path):
    rows = rollouts(groups=200, size=12, positive=60, negative=60, spread=55, steps=1)
    found = diagnose([rollout_logs.verl(tmp_path / "log.jsonl", rows)], Options())
    sequence, token = found.analysis.rules["sequence"], found.analysis.rules["token"]
    assert sequence.length_bias > 0.1 and abs(token.length_bias) < 1e-9
    assert abs(token.sign_bias) < 2 * token.sign_error and token.sign_shift > 0.02  # by chance in each group
    assert "so no certain direction" in found.verdict and "now the other" in found.verdict
    assert "moves from long to short responses of one sign" in found.verdict
    assert sequence.effective_tokens < token.effective_tokens


def test_where_all_are_equally_long_no_rule_differs(tmp_path):
    rows = rollouts(positive=50, negative=50, spread=0)
    found = diagnose([rollout_logs.verl(tmp_path / "log.jsonl", rows)], Options())
    assert all(distance < 1e-6 for distance in found.analysis.distances.values())
    assert "The choice of rule hardly matters here" in found.verdict
    assert f"No bias to speak of under {', '.join(list(RULES)[:-1])} and" in found.verdict


def test_prompts_are_told_by_length_or_size(tmp_path):
    def favoured(rows):
        rules = diagnose([write_jsonl(tmp_path / "log.jsonl", rows)], Options()).analysis.rules
        return {name: rules[name].favoured_groups for name in ("token_batch", "constant")}

    def group(problem, size, length):
        return [{"group": problem, "length": length, "reward": i % 2} for i in range(size)]

    assert favoured(group(0, 4, 10) + group(1, 4, 30)) == {"token_batch": "longer", "constant": "longer"}
    sizes = group(0, 4, 20) + group(1, 12, 20) + group(2, 4, 24) + group(3, 12, 24)
    assert favoured(sizes) == {"token_batch": "more", "constant": "longer"}


def test_a_rule_of_ones_own(tmp_path):
    (tmp_path / "own.py").write_text(
        "import torch\ndef equal(lengths, advantages, group_ids):\n    return torch.ones_like(lengths)\n"
    )
    path = rollout_logs.verl(tmp_path / "log.jsonl", ROWS)
    found = diagnose([path], Options(rule=(f"{tmp_path}/own.py:equal",)))
    assert found.analysis.distances["token_batch", "equal"] == pytest.approx(0, abs=1e-9)
    with pytest.raises(UserError, match="--rule nothing: unknown rule"):
        diagnose([path], Options(rule=("nothing",)))


# -- degenerate logs


def graded(right_of, scored, boxed=r"so it is \boxed{%s}.", count=200):
    """One problem a row pair; the first answer is right if `right_of(i)`; `scored` makes the reward of it."""
    return [
        {"prompt_id": i // 4, "gold": str(i // 4 + 10), "reward": scored(right_of(i)),
         "response": boxed % (i // 4 + 10 if right_of(i) else 5)}
        for i in range(count)
    ]  # fmt: skip


def half(i):
    return i % 2 == 0


def test_rewards_that_contradict_the_answers_are_found(tmp_path):
    rows = graded(half, lambda right: 0)
    rows[0]["reward"] = 1.0
    found = diagnose([write_jsonl(tmp_path / "log.jsonl", rows)], Options())
    checked = found.verification
    assert (checked.compared, checked.wrongly_failed, checked.wrongly_passed) == (200, 99, 0)
    assert "rewards_contradict_answers" in found.findings and found.verdict is None
    text = plain(found)
    assert "99 right answers were scored as wrong" in " ".join(text.split())
    assert f"{tmp_path}/log.jsonl, line 3: answer '10' equals '10', reward 0" in text.replace("\n  ", " ")
    assert len(checked.examples) == 3


def test_answers_without_a_box_and_golds_that_are_none_accuse_nobody(tmp_path):
    rows = graded(half, float, boxed="The answer is %s.")
    found = diagnose([write_jsonl(tmp_path / "log.jsonl", rows)], Options())
    assert found.findings == {} and found.verification.startswith("not checked")
    programs = [row | {"gold": {"inputs": ["1"]}} for row in graded(half, lambda right: 0.5)]
    found = diagnose([write_jsonl(tmp_path / "log.jsonl", programs)], Options())
    assert found.verification.startswith("not checked")


@pytest.mark.parametrize("scored", [float, lambda right: 1.0 if right else -1.0])
def test_right_rewards_and_a_few_differences_are_no_contradiction(tmp_path, scored):
    rows = graded(half, scored, boxed="We get\n#### %s")
    for place in (1, 5, 9):  # 1.5 %
        rows[place]["reward"] = 1.0
    found = diagnose([write_jsonl(tmp_path / "log.jsonl", rows)], Options())
    assert (found.verification.compared, found.verification.wrongly_passed, found.findings) == (200, 3, {})


def test_the_sample_is_drawn_with_a_fixed_seed(tmp_path):
    path = write_jsonl(tmp_path / "log.jsonl", graded(half, float, count=5000))
    one, two = (read_log([path], Options(verify=40)).recorded for _ in range(2))
    assert one == two and len({row.place for row in one}) == 40
    lines = [int(row.place.rpartition(" ")[2]) for row in one]
    assert lines == sorted(lines) and lines[0] < 1000 < 4000 < lines[-1]
    assert read_log([path], Options(verify=0)).recorded == []


@pytest.mark.parametrize("name, rows", [
    ("zero_variance", [{"prompt": i // 4, "reward": i // 4 % 2, "length": 5 + i} for i in range(40)]),
    ("groups_of_one", [{"prompt": max(i, 14), "reward": i % 2, "length": 5 + i} for i in range(30)]),
    ("truncated", [{"prompt": i // 4, "reward": i % 2, "length": 5, "truncated": True} for i in range(40)]),
    ("empty", [{"prompt": i // 4, "reward": i % 2, "length": 5, "response": " \n"} for i in range(40)]),
])  # fmt: skip
def test_other_degenerate_logs(tmp_path, name, rows, capsys):
    path = write_jsonl(tmp_path / "log.jsonl", rows)
    with pytest.raises(SystemExit) as ended:
        command([path], Options(), tmp_path / "out.json", tmp_path / "out.png")
    assert ended.value.code == EXIT_CODE
    assert "This log is degenerate" in capsys.readouterr().out
    written = json.loads((tmp_path / "out.json").read_text())
    assert list(written["degenerate"]) == [name]
    assert written["rules"] is None and written["verdict"] is None
    assert not (tmp_path / "out.png").exists()


def test_a_few_bad_responses_make_no_log_degenerate(tmp_path):
    rows = [{"prompt": i // 4, "reward": i % 2, "length": 5 * (i > 7), "truncated": i != 20} for i in range(40)]
    rows += [{"prompt": "alone", "reward": 1, "length": 5, "truncated": False}]
    assert diagnose([write_jsonl(tmp_path / "log.jsonl", rows)], Options()).findings == {}


# -- mistakes


@pytest.mark.parametrize("content, says", [
    ('{"prompt": 1, "reward": 1, "length": 2}\n{"prompt": 1, "reward": 1', "line 2: not JSON"),
    ('{"prompt": 1, "reward": 1, "length": 2}\n{"prompt": 1, "length": 2}', "line 2: has no 'reward'.*it has: prompt"),
    ('{"prompt": 1, "reward": 1, "length": 2}\n[1]', "line 2: not an object"),
    ('{"prompt": 1, "reward": 1, "length": 2}\n\n{"prompt": 1, "reward": 1, "length": 2}', "line 2: is empty"),
    ('{"prompt": 1, "reward": "good", "length": 2}', "line 1: reward must be one number, got 'good'"),
    ('{"prompt": 1, "reward": null, "length": 2}', "line 1: reward must be a number, got 'None'"),
    ('{"prompt": 1, "reward": 1, "advantage": [1, 2], "length": 2}', "line 1: advantage must be one number"),
    ('{"prompt": 1, "reward": 1, "length": 2.5}', "line 1: length must be a whole number >= 0, got '2.5'"),
    ('{"prompt": 1, "reward": 1, "length": -1}', "line 1: length must be a whole number"),
    ('{"prompt": 1, "reward": 1, "length": 2, "step": [1]}', "line 1: step must be one value"),
    ('{"wat": 1, "length": 2}', "columns are wat, length\n.*no column of a group.*--group.*\n.*reward: give --reward"),
    ('{"prompt": 1, "reward": 1}', "no column of a length, nor of a response to measure: give --length"),
    ("", "is empty"),
])  # fmt: skip
def test_what_is_wrong_with_a_file_is_said(tmp_path, content, says):
    path = tmp_path / "log.jsonl"
    path.write_text(content)
    with pytest.raises(UserError, match=rf"(?s)log\.jsonl.*{says}"):
        diagnose([path], Options())


def test_what_is_wrong_with_flags_and_files_is_said(tmp_path):
    path = rollout_logs.verl(tmp_path / "log.jsonl", ROWS)
    for options, says in (
        (Options(reward=("wat",)), "--reward wat: no such column in .*log.jsonl; it has: input, output"),
        (Options(max_length=0), "--max-length 0"),
        (Options(verify=-1), "--verify -1"),
        (Options(length="score", tokenizer=Path("x")), "--length and --tokenizer"),
    ):
        with pytest.raises(UserError, match=says):
            diagnose([path], options)
    with pytest.raises(UserError, match="nowhere: no such file"):
        diagnose([path, tmp_path / "nowhere"], Options())
    other = tmp_path / "other.parquet"
    pd.DataFrame({"input": ["a"]}).to_parquet(other)
    with pytest.raises(UserError, match=r"other\.parquet: has no column"):
        diagnose([path, other], Options())
    torn = rollout_logs.trl(tmp_path / "torn.parquet", ROWS)
    torn.write_bytes(torn.read_bytes()[:-100])
    with pytest.raises(UserError, match=r"torn\.parquet: not a Parquet file"):
        diagnose([torn], Options())
    with pytest.raises(UserError, match="no file to read"):
        command([], Options(), None, None)
    with pytest.raises(UserError, match=r"--figure a\.svg: must end in"):
        command([path], Options(), None, Path("a.svg"))


# -- what is written


@pytest.mark.slow
def test_report_json_and_figure(tmp_path, capsys):
    path = rollout_logs.verl(tmp_path / "log.jsonl", ROWS)
    figures = [tmp_path / name for name in ("one.png", "two.png", "one.pdf")]
    for figure in figures:
        command([path], Options(), tmp_path / "out.json", figure)
    drawn = [figure.read_bytes() for figure in figures]
    assert drawn[0].startswith(b"\x89PNG") and drawn[2].startswith(b"%PDF") and drawn[0] == drawn[1]
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 110
    written = json.loads((tmp_path / "out.json").read_text())
    assert set(written["rules"]) == set(RULES) and len(written["distances"]) == len(RULES) * (len(RULES) - 1) // 2
    assert written["rules"]["token"]["positive_share"] == pytest.approx(positive_shares(ROWS)["token"], rel=1e-5)
    assert written["verdict"] and written["verdict"].split()[-1] in out
    assert written["log"]["truncated"] is None
    assert written == to_json(diagnose([path], Options()))


@pytest.mark.slow
def test_the_command_and_its_exit_codes(tmp_path):
    def run(*arguments):
        code = "from balanced_aggregation.cli import main; main()"
        return subprocess.run(
            [sys.executable, "-c", code, "diagnose", *map(str, arguments)], capture_output=True, text=True
        )

    good = rollout_logs.verl(tmp_path / "log.jsonl", ROWS)
    done = run("--max-length", 80, "--reward", "acc", "--group", "input", "--group", "gts", good, good)
    assert (done.returncode, done.stderr) == (0, "")
    said = " ".join(done.stdout.split())  # lines end where a path's length has them end
    assert "log.jsonl and 1 more: a verl generations dump" in said and "reward = acc" in said
    assert "group = input + gts" in said
    wrong = run(tmp_path / "nowhere.jsonl")
    assert wrong.returncode == 1 and wrong.stderr == f"error: {tmp_path}/nowhere.jsonl: no such file\n"


# -- size


def test_a_response_takes_few_bytes(tmp_path):
    log = read_log([rollout_logs.trl(tmp_path / "log.parquet", ROWS)], Options())
    arrays = [value for value in vars(log).values() if isinstance(value, np.ndarray)]
    assert sum(array.nbytes for array in arrays) <= 32 * len(log)


_PEAK = """
import resource, sys
from pathlib import Path
from balanced_aggregation.diagnose.diagnosis import diagnose
from balanced_aggregation.diagnose.options import Options
found = diagnose([Path(sys.argv[1])], Options())
print(found.analysis.responses, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_memory_grows_by_the_numbers_and_not_by_the_text(tmp_path, suffix):
    """A thousandth of the text of 200,000 responses stays: 400 MB of it are read, scattered over groups."""
    draw = np.random.default_rng(0)

    def peak(count):
        path = tmp_path / f"log{count}.{suffix}"
        frame = pd.DataFrame(
            {"prompt": draw.permutation(np.arange(count) // 8).astype(str), "score": draw.integers(0, 2, count)}
        )
        frame["output"] = [draw.bytes(1000).hex()[: 1000 + i % 1000] for i in range(count)]
        frame.to_parquet(path, row_group_size=count) if suffix == "parquet" else frame.to_json(
            path, orient="records", lines=True
        )
        run = subprocess.run([sys.executable, "-c", _PEAK, str(path)], capture_output=True, text=True, check=True)
        responses, used = map(int, run.stdout.split())
        assert responses == count
        return used

    growth = peak(200_000) - peak(20_000)
    assert growth < 60e6
