"""A tagger of words: two recurrent layers with dropout between them."""

import torch
from torch import Tensor, nn


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.GRU(8, 16, num_layers=2, dropout=0.5)
        self.tag = nn.Linear(16, 4)

    def forward(self, words: Tensor) -> Tensor:
        hidden, _ = self.encoder(words)
        return self.tag(hidden)


def make() -> tuple[nn.Module, Tensor]:
    return Tagger().train(), torch.randn(5, 2, 8)


def check() -> None:
    torch.manual_seed(0)
    model, words = make()
    with torch._dynamo.config.patch(allow_rnn=True):
        compiled = torch.compile(model, backend="aot_eager")
        pairs = {"plain": (model(words), model(words)), "compiled": (compiled(words), compiled(words))}
        dropped = (compiled(words) - model.eval()(words)).abs().max()
    for name, (first, second) in pairs.items():
        print(f"two calls of the {name} model in training mode: {(first - second).abs().max():.2g} apart")
    print(f"the compiled model in training mode against the plain one in evaluation mode: {dropped:.2g} apart")


if __name__ == "__main__":
    check()
