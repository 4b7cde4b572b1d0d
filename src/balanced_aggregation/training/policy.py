"""A model as the trainer uses it: replicated on every process, or sharded over them (FSDP2)."""

import functools
from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from balanced_aggregation.config import Compute
from balanced_aggregation.training.batch import token_log_probs
from balanced_aggregation.training.world import World


class Policy(nn.Module):
    """A causal language model whose forward pass gives the log-probabilities of responses."""

    def __init__(self, model: PreTrainedModel, compute: Compute = Compute(), world: World = World()):  # noqa: B008
        """Move the model to its device; shard it, and checkpoint its activations, if the study says so.

        Args:
            model: in float32; the parameters are those that are trained, or their shards take the place.
            compute: strategy, precision and activation checkpointing.
            world: the processes of the training.
        """
        super().__init__()
        self.model = model
        self.world = world
        self.device = world.device
        layers = [m for m in model.modules() if type(m).__name__ in (model._no_split_modules or ())]
        if compute.activation_checkpointing:
            for layer in layers:
                # On the method, not by a wrapper: names of parameters stay what they are.
                layer.forward = functools.partial(checkpoint, layer.forward, use_reentrant=False)
        if compute.strategy == "fsdp":
            computed_in = getattr(torch, compute.dtype)
            precision = MixedPrecisionPolicy(param_dtype=computed_in, reduce_dtype=torch.float32)
            mesh = init_device_mesh(world.device.type, (world.size,))
            for module in (*layers, self):
                fully_shard(module, mesh=mesh, mp_policy=precision)
            for module in self.modules():
                if isinstance(module, FSDPModule):
                    module.set_gradient_divide_factor(1.0)  # the loss is a sum over the batch, not a mean over ranks
                    module.set_force_sum_reduction_for_comms(True)  # gloo knows no other way
        else:
            self.to(self.device)

    @property
    def is_sharded(self) -> bool:
        """Whether every forward and backward pass needs all processes."""
        return isinstance(self, FSDPModule)

    def forward(
        self,
        prompts: Sequence[Int[Tensor, " prompt"]],
        responses: Sequence[Int[Tensor, " response"]],
        temperature: float,
    ) -> Float[Tensor, " tokens"]:
        """See `token_log_probs`."""
        prompts, responses = ([x.to(self.device) for x in side] for side in (prompts, responses))
        return token_log_probs(self.model, prompts, responses, temperature)

    def release(self) -> None:
        """To be called after forward passes without a backward pass: weights that these gathered get out of date."""
        if self.is_sharded:
            self.reshard()

    def named_weights(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The parameters, or this process's shards of them, by their names in the Hugging Face model."""
        return self.model.named_parameters()

    @torch.no_grad()
    def full_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Every parameter whole, one after the other; if sharded, all processes must go through all of them."""
        for name, parameter in self.named_weights():
            yield name, parameter.full_tensor() if isinstance(parameter, DTensor) else parameter.detach()

    def sum_gradients(self) -> None:
        """Make every process's gradient the sum over all; where the model is sharded it is that already."""
        if not self.is_sharded:
            for parameter in self.parameters():
                self.world.sum(parameter.grad)
