"""Executions of one graph or model, value by value."""

from dort_compare.trace.graph_run import GraphRun
from dort_compare.trace.lockstep import Step, lockstep
from dort_compare.trace.modules import run_module
from dort_compare.trace.onnx import onnx_values
from dort_compare.trace.outcome import Outcome
from dort_compare.trace.replay import Replay

__all__ = ["GraphRun", "Outcome", "Replay", "Step", "lockstep", "onnx_values", "run_module"]
