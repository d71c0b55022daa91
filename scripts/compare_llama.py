"""Compares a part of a Llama, run by ONNX Runtime, with eager PyTorch; the same as ``dort-compare llama``."""

import sys

from dort_compare.cli import main

if __name__ == "__main__":
    main(["llama", *sys.argv[1:]])
