"""Two ONNX models against each other."""
