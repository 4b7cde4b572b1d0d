"""What is added to vLLM's worker. vLLM imports it by name, and only where it runs."""

from collections.abc import Iterable

from torch import Tensor
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.platforms import current_platform


class WeightUpdate:
    """Mixed into the worker's class, whose attributes it uses."""

    def replace_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Take full tensors by their names in the Hugging Face model; each worker keeps its own share of them.

        On a GPU they are copied into the parameters in place. On a CPU a layer computes with a packed copy of its
        weights, and the parameters themselves are gone: vLLM's reloading makes both anew, layer by layer. It does so
        for layers that a weight is named for. An output layer tied to the embedding is not: its packed copy, which
        would stay the old one, is made here.
        """
        if not current_platform.is_cpu():
            self.model_runner.get_model().load_weights(weights)
            return
        self.model_runner.reload_weights(weights_iterator=weights)
        for layer in self.model_runner.get_model().modules():
            if isinstance(layer, ParallelLMHead):
                layer.quant_method.process_weights_after_loading(layer)
