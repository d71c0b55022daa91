"""Which of ONNX Runtime's optimizers make a model depart."""
