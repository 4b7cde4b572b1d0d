"""Log-probabilities in chunks against log_softmax in one piece; gradients against finite differences."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from balanced_aggregation.training.batch import token_log_probs
from balanced_aggregation.training.log_probs import CHUNK_ELEMENTS, selected_log_probs

D, V = 5, 11


def problem(n, dtype=torch.float64, bias=True, d=D, v=V):
    generator = torch.Generator().manual_seed(n)
    tensors = [torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((n, d), (v, d), (v,))]
    hidden, weight, offset = (t.to(dtype).requires_grad_() for t in tensors)
    return hidden, weight, offset if bias else None, torch.randint(0, v, (n,), generator=generator)


def in_one_piece(hidden, weight, bias, targets, temperature):
    scores = torch.nn.functional.linear(hidden, weight, bias) / temperature
    return torch.log_softmax(scores, -1).gather(1, targets[:, None]).squeeze(1)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("n", [0, 1, 6, 7])
def test_values_and_gradients_with_every_size_of_chunk(n, bias):
    hidden, weight, offset, targets = problem(n, bias=bias)
    inputs = [t for t in (hidden, weight, offset) if t is not None]
    direction = torch.linspace(-1, 2, n, dtype=torch.float64)
    expected = in_one_piece(hidden, weight, offset, targets, 0.7)
    expected_gradients = torch.autograd.grad(expected @ direction, inputs)
    for rows in (None, *range(1, n + 2)):
        found = selected_log_probs(hidden, weight, offset, targets, 0.7, rows)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
        gradients = torch.autograd.grad(found @ direction, inputs)
        torch.testing.assert_close(gradients, expected_gradients, rtol=1e-11, atol=1e-12)
        with torch.no_grad():
            assert torch.equal(selected_log_probs(hidden, weight, offset, targets, 0.7, rows), found)


@pytest.mark.parametrize("rows", [1, 3, 4, 7, None])
def test_gradients_against_finite_differences(rows):
    hidden, weight, bias, targets = problem(7)
    assert torch.autograd.gradcheck(
        lambda h, w, b: selected_log_probs(h, w, b, targets, 1.3, rows), (hidden, weight, bias), fast_mode=False
    )


def test_gradients_of_some_inputs_only():
    hidden, weight, bias, targets = problem(7)
    expected = torch.autograd.grad(in_one_piece(hidden, weight, bias, targets, 1.0).sum(), [hidden, weight])
    found = selected_log_probs(hidden, weight.detach(), bias.detach(), targets, 1.0, 3).sum()
    torch.testing.assert_close(torch.autograd.grad(found, hidden)[0], expected[0])
    found = selected_log_probs(hidden.detach(), weight, None, targets, 1.0, 3).sum()
    expected = torch.autograd.grad(in_one_piece(hidden, weight, None, targets, 1.0).sum(), weight)
    torch.testing.assert_close(torch.autograd.grad(found, weight), expected)


def test_scores_beyond_the_range_of_exp():
    hidden, weight, _, targets = problem(6, torch.float32, bias=False)
    hidden = hidden.detach() * 1000
    expected = in_one_piece(hidden.double(), weight.double(), None, targets, 1.0)
    assert expected.min() < -1000
    torch.testing.assert_close(
        selected_log_probs(hidden, weight, None, targets).double(), expected, rtol=1e-5, atol=1e-3
    )


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 3e-6), (torch.bfloat16, 3e-2)])
def test_lower_precision(dtype, tolerance):
    """Half-precision inputs give float32 values; each gradient is close to that of the same numbers in float64."""
    hidden, weight, bias, targets = problem(300, dtype, d=32, v=50)
    scaled = [(t.detach() / 4).requires_grad_() for t in (hidden, weight, bias)]
    exact = [t.detach().double().requires_grad_() for t in scaled]
    direction = torch.linspace(-1, 2, 300)
    expected = in_one_piece(*exact, targets, 0.9)
    found = selected_log_probs(*scaled, targets, 0.9, 7)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=tolerance)
    gradients = torch.autograd.grad(found @ direction, scaled)
    for ours, theirs in zip(gradients, torch.autograd.grad(expected @ direction.double(), exact), strict=True):
        assert ours.dtype == dtype
        assert (ours.double() - theirs).norm() <= tolerance * theirs.norm()


def test_weight_gradient_of_half_precision_is_summed_in_float32():
    """4000 chunks that each add 1 to the gradient: in bfloat16 the sum would stop at 256."""
    hidden = torch.ones(4000, 1, dtype=torch.bfloat16)
    weight = torch.tensor([[0.0], [-100.0]], dtype=torch.bfloat16, requires_grad=True)
    selected_log_probs(hidden, weight, None, torch.ones(4000, dtype=torch.int64), chunk_rows=1).sum().backward()
    assert weight.grad.flatten().tolist() == [-4000.0, 4000.0]


class LargestTensor(TorchDispatchMode):
    """Records the most elements of any tensor that an operation returns."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        sizes = [t.numel() for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
        self.largest = max(self.largest, *sizes, 0)
        return result


def test_no_tensor_of_tokens_times_vocabulary(make_model, monkeypatch):
    """Neither in the forward nor in the backward pass of a training step."""
    model = make_model()
    model.resize_token_embeddings(500)
    n, width = 40, 16
    prompts, responses = [torch.tensor([2])] * 4, [torch.arange(10)] * 4
    largest = {}
    for chunk in (5 * 500, 10**9):
        monkeypatch.setitem(CHUNK_ELEMENTS, "cpu", chunk)
        with LargestTensor() as mode:
            token_log_probs(model, prompts, responses, 1.0).sum().backward()
        largest[chunk] = mode.largest
    assert largest[5 * 500] == 500 * width < n * 500  # the gradient of the output layer
    assert largest[10**9] == n * 500  # the recorder sees such a tensor where one chunk holds all
