"""Plain eager against the traced graphs on torch's kernels: what departs before ONNX."""
