import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from balanced_aggregation.advantages import group_advantages


def test_golden_values():
    # Rewards 1, 0, 0, 1: mean .5, sample std sqrt(4 * .25 / 3) = .57735; group of 3: mean 1/3, std .57735.
    rewards = torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0])
    ids = torch.tensor([0, 1, 0, 1, 0, 1, 0])
    std = (1 / 3) ** 0.5
    expected = torch.tensor([0.5, 2 / 3, -0.5, -1 / 3, -0.5, -1 / 3, 0.5], dtype=torch.float64)
    torch.testing.assert_close(group_advantages(rewards, ids, normalize_std=False), expected)
    torch.testing.assert_close(group_advantages(rewards, ids, eps=0.0), expected / std)
    torch.testing.assert_close(group_advantages(rewards, ids, eps=0.1), expected / (std + 0.1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(reward=st.floats(-1e6, 1e6, width=32), size=st.integers(1, 17))
def test_equal_rewards_give_exactly_zero(dtype, reward, size):
    rewards = torch.full((size,), reward, dtype=dtype)
    for normalize_std in (True, False):
        advantages = group_advantages(rewards, torch.zeros(size).long(), normalize_std=normalize_std, eps=0.0)
        assert advantages.tolist() == [0.0] * size


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", range(2, 40))
def test_equal_rewards_whose_mean_is_inexact(dtype, size):
    for reward in (0.2, 0.1, 1 / 3, 0.7):
        rewards = torch.full((size,), reward, dtype=dtype)
        assert not group_advantages(rewards, torch.zeros(size).long()).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_reward_that_equals_the_mean_has_sign_zero(dtype):
    for step in (0.1, 0.2, 0.3, 1 / 3, 1e-3):
        rewards = torch.tensor([step, 2 * step, 3 * step], dtype=dtype)
        assert group_advantages(rewards, torch.zeros(3).long()).sign().tolist() == [-1, 0, 1]


@given(
    rewards=st.lists(st.sampled_from([0.0, 0.2, 0.5, 1.0]), min_size=1, max_size=30),
    data=st.data(),
)
def test_centred_scaled_and_independent_of_order(rewards, data):
    ids = data.draw(st.lists(st.integers(0, 3), min_size=len(rewards), max_size=len(rewards)))
    r, g = torch.tensor(rewards, dtype=torch.float64), torch.tensor(ids)
    advantages = group_advantages(r, g, eps=0.0)
    for group in g.unique():
        own, mine = r[g == group], advantages[g == group]
        if own.min() == own.max():
            assert not mine.any()
        else:
            assert float(mine.mean()) == pytest.approx(0, abs=1e-12)
            assert float(mine.std()) == pytest.approx(1, rel=1e-12)
            assert torch.equal(mine.sign(), (own - own.mean()).where((own - own.mean()).abs() > 1e-12, 0.0).sign())
    order = torch.tensor(data.draw(st.permutations(range(len(rewards)))))
    torch.testing.assert_close(group_advantages(r[order], g[order], eps=0.0), advantages[order])


def test_small_differences_are_not_taken_for_rounding():
    rewards = torch.zeros(32, dtype=torch.bfloat16)
    rewards[0] = 1
    assert group_advantages(rewards, torch.zeros(32).long()).sign().tolist() == [1] + [-1] * 31
    far = torch.tensor([1e6, 1e6 + 0.25], dtype=torch.float32)
    assert group_advantages(far, torch.zeros(2).long()).sign().tolist() == [-1, 1]


def test_wrong_input_is_refused():
    with pytest.raises(ValueError, match="index 1: nan"):
        group_advantages(torch.tensor([0.0, float("nan")]), torch.tensor([0, 0]))
    with pytest.raises(ValueError, match=r"rewards \(2,\) and group_ids \(1,\)"):
        group_advantages(torch.zeros(2), torch.zeros(1).long())
    assert group_advantages(torch.empty(0), torch.empty(0).long()).shape == (0,)
