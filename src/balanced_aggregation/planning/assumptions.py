"""What a plan takes for granted. Each is a flag of `balagg plan`, printed with its value."""

from dataclasses import dataclass, fields

from balanced_aggregation.errors import UserError

GB = 1e9
"""Bytes."""

LAYER_OVERHEAD_MS = {"vllm": 0.1, "transformers": 1.0}
"""By engine: launching kernels from Python costs transformers some 30 ms a step for 28 layers, CUDA graphs a tenth."""


@dataclass(frozen=True)
class Assumptions:
    """The defaults are those of an H100 SXM of 80 GB: its data sheet states 989 and 67 TFLOP/s and 3.35 TB/s."""

    mean_length: float = 0.5
    """Mean length of a response, as a share of its limit."""
    mean_prompt: float = 0.1
    """Mean length of a prompt, as a share of the longest allowed."""
    peak_tflops: float = 989.0
    """Dense bfloat16 matrix products of a GPU, 10^12 operations a second."""
    peak_float32_tflops: float = 67.0
    """The same in float32, without TF32."""
    utilization: float = 0.4
    """Share of the peak that forward and backward reach; what is computed again counts as work."""
    bandwidth_gbs: float = 3350.0
    """From a GPU's memory, 10^9 bytes a second."""
    bandwidth_share: float = 0.7
    """Share of that bandwidth that decoding reaches."""
    layer_overhead_ms: float | None = None
    """Of a layer in a decoding step, beyond memory and arithmetic; by default 0.1 with vLLM, 1 with transformers."""
    node_gbs: float = 450.0
    """Between the GPUs of a node, for each GPU in one direction, 10^9 bytes a second (NVLink 4)."""
    network_gbs: float = 50.0
    """Between nodes, for each GPU in one direction, 10^9 bytes a second (400 Gbit/s)."""
    reserve_gb: float = 4.0
    """Of a GPU's memory: CUDA contexts, NCCL buffers, fragmentation."""
    engine_working_gb: float = 3.0
    """Of vLLM's share: its activations, sampler and CUDA graphs; the rest but for the weights is KV cache."""
    engine_asleep_gb: float = 2.0
    """What vLLM keeps of a GPU while it sleeps."""
    cpu_gflops: float = 50.0
    """A thread's float32 matrix products where there is no GPU, 10^9 operations a second."""
    cpu_bandwidth_gbs: float = 10.0
    """From memory for one process where there is no GPU, 10^9 bytes a second."""

    def check(self) -> None:
        """Refuse values that mean nothing.

        Raises:
            UserError: one line for each.
        """
        shares = ("mean_length", "mean_prompt", "utilization", "bandwidth_share")
        problems = []
        for field in fields(self):
            value = getattr(self, field.name)
            flag = f"--{field.name.replace('_', '-')} {value}"
            if field.name in shares and not 0 < value <= 1:
                problems.append(f"{flag}: a share, above 0 and at most 1")
            elif field.name.endswith(("tflops", "gflops", "gbs")) and not 0 < value < float("inf"):
                problems.append(f"{flag}: must be above 0")
            elif value is not None and not 0 <= value < float("inf"):
                problems.append(f"{flag}: must not be negative")
        if problems:
            raise UserError("\n".join(problems))

    def overhead_seconds(self, engine: str, layers: int) -> float:
        """Seconds of a decoding step of ``engine`` that neither memory nor arithmetic explains."""
        per_layer = LAYER_OVERHEAD_MS[engine] if self.layer_overhead_ms is None else self.layer_overhead_ms
        return per_layer * layers / 1000
