"""What torch's kernels take of the processor.

Its products of matrices are MKL's, which takes AVX-512 on Intel's processors alone; its convolutions are oneDNN's,
which takes it on AMD's too.
"""

from __future__ import annotations

import torch

_CAPABILITIES = torch.cpu.get_capabilities()
HAS_AVX512 = torch.backends.cpu.get_cpu_capability() == "AVX512"
IS_INTEL = "Intel" in _CAPABILITIES.get("cpu_name", "")
MULTIPLIES_SLOWLY = HAS_AVX512 and not IS_INTEL and _CAPABILITIES.get("avx_vnni", False)
"""Whether torch's products take twice the time of ONNX Runtime's (`benchmarks/results/slow-products-amd.md`): AMD's
processors compute AVX-512 at once from Zen 5 on, which brought AVX-VNNI, and by halves before."""
