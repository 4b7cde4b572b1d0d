import math

import pytest
import torch

from balanced_aggregation.surrogate import clipped_surrogate, importance_weight, is_clipped, kl_penalty

CLIP = {"clip_low": 0.2, "clip_high": 0.3}


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope", "clipped"),
    [
        (1.0, 2.0, -2.0, -2.0, False),
        (1.2, 2.0, -2.4, -2.4, False),
        (1.5, 2.0, -2.6, 0.0, True),  # a good token is not made more likely beyond 1 + clip_high
        (0.5, 2.0, -1.0, -1.0, False),  # but one that has become unlikely keeps its gradient
        (0.5, -2.0, 1.6, 0.0, True),  # a bad token is not made less likely beyond 1 - clip_low
        (1.5, -2.0, 3.0, 3.0, False),
        (1.5, 0.0, 0.0, 0.0, False),
    ],
)
def test_clipped_surrogate(ratio, advantage, loss, slope, clipped):
    old = torch.tensor([-1.3], dtype=torch.float64, requires_grad=True)
    new = (old.detach() + math.log(ratio)).requires_grad_()
    a = torch.tensor([advantage], dtype=torch.float64)
    value = clipped_surrogate(new, old, a, **CLIP)
    value.sum().backward()
    assert value.item() == pytest.approx(loss)
    assert new.grad.item() == pytest.approx(slope, abs=1e-12)  # d ratio / d log-probability = ratio
    assert old.grad is None
    assert is_clipped(new, old, a, **CLIP).item() is clipped


def test_weights_can_be_folded_into_advantages():
    torch.manual_seed(0)
    new, old, a = torch.randn(50, dtype=torch.float64), torch.randn(50, dtype=torch.float64), torch.randn(50).double()
    w = torch.rand(50, dtype=torch.float64)
    torch.testing.assert_close(clipped_surrogate(new, old, w * a, **CLIP), w * clipped_surrogate(new, old, a, **CLIP))


def test_kl_penalty():
    p, q = torch.tensor([0.5], dtype=torch.float64).log().requires_grad_(), torch.tensor([0.25]).double().log()
    penalty = kl_penalty(p, q)
    assert penalty.item() == pytest.approx(0.5 - math.log(0.5) - 1)
    penalty.backward()
    assert p.grad.item() == pytest.approx(1 - 0.5)
    assert kl_penalty(q, q).item() == 0


def test_importance_weight_is_cut_at_the_cap_and_passes_no_gradient():
    trainer = torch.tensor([-1.0, -1.0, -1.0]).requires_grad_()
    engine = torch.tensor([-1.0, -1.0 + math.log(2), -1.0 - math.log(4)])
    weight = importance_weight(trainer, engine, 2.0)
    torch.testing.assert_close(weight, torch.tensor([1.0, 0.5, 2.0]))
    assert not weight.requires_grad
