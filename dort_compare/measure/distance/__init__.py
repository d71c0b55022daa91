"""How far two tensors lie apart, in numbers."""
