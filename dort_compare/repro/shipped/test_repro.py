"""Fails for as long as a result departs: ``pytest`` in this folder. Needs onnxruntime, numpy and pytest."""

import repro


def test_every_result_agrees_within_noise() -> None:
    """No result is further from torch, or else from float64, than noise explains."""
    for name, apart, torch_error, onnx_error, floor, departs in repro.rows():
        assert departs is None, (
            f"{name}: {departs} departs: |torch - onnx| = {apart}, |torch - float64| = {torch_error}, "
            f"|onnx - float64| = {onnx_error}, noise is {floor}"
        )
