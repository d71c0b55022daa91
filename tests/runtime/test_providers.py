"""What a caller says about providers and session options is what the session gets, or is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
import pytest
import torch

from dort_compare.errors import ExecutionError, RuntimeUnavailableError, UsageError
from dort_compare.runtime import SessionSettings, providers, refused_options
from dort_compare.runtime.providers import Provider
from dort_compare.runtime.session import make_session

CPU = "CPUExecutionProvider"
NEGATION = '<ir_version: 10, opset_import: ["" : 20]> graph (float[N] x) => (float[N] y) { y = Neg(x) }'


def session(**settings: Any) -> ort.InferenceSession:
    chosen = SessionSettings(**settings)
    return make_session(onnx.parser.parse_model(NEGATION), chosen, chosen.resolved_providers()).onnx_session


@pytest.mark.parametrize("providers", [(), ("cpu",), (CPU,), ((CPU, {"arena_extend_strategy": "kSameAsRequested"}),)])
def test_the_session_has_the_providers_that_were_named(providers: tuple[Any, ...]) -> None:
    assert session(providers=providers).get_providers() == [CPU]


def test_provider_options_are_kept() -> None:
    settings = SessionSettings(providers=((CPU, {"use_arena": "0"}), "cpu"))
    assert settings.resolved_providers() == [(CPU, {"use_arena": "0"}), (CPU, {})]


def test_attributes_and_config_entries_reach_the_session() -> None:
    options = {"intra_op_num_threads": 1, "session.disable_prepacking": "1"}
    got = session(session_options=options).get_session_options()
    assert got.intra_op_num_threads == 1
    assert got.get_session_config_entry("session.disable_prepacking") == "1"


SPIN, STOP = "session.intra_op.spin_duration_us", "session.force_spinning_stop"


@pytest.mark.parametrize(
    ("version", "given", "other"), [("1.31.1", SPIN, STOP), ("2.0.0.dev1", SPIN, STOP), ("1.22.0", STOP, SPIN)]
)
def test_threads_do_not_wait_busily_for_long(version, given, other, monkeypatch) -> None:
    monkeypatch.setattr(ort, "__version__", version)
    options = SessionSettings().make_options()
    assert options.get_session_config_entry(given)
    with pytest.raises(RuntimeError, match=other):
        options.get_session_config_entry(other)


def test_a_config_entry_may_be_a_boolean() -> None:
    options = SessionSettings(session_options={"session.disable_prepacking": True, SPIN: False}).make_options()
    assert options.get_session_config_entry("session.disable_prepacking") == "1"
    assert options.get_session_config_entry(SPIN) == "0"


def test_how_long_threads_wait_is_the_callers_to_say() -> None:
    options = SessionSettings(session_options={SPIN: "50"}).make_options()
    assert options.get_session_config_entry(SPIN) == "50"


def test_a_session_options_object_is_taken_as_it_is() -> None:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    assert SessionSettings(session_options=options).make_options() is options
    got = session(session_options=options).get_session_options()
    assert got.graph_optimization_level == ort.GraphOptimizationLevel.ORT_DISABLE_ALL


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"providers": ("cpuu",)}, "unknown execution provider 'cpuu', did you mean 'cpu'?"),
        ({"providers": ("gpu",)}, "unknown execution provider 'gpu', did you mean 'cuda'?"),
        ({"providers": ("CPUExecutionProvide",)}, "did you mean 'CPUExecutionProvider'?"),
        (
            {"providers": (("cuda", {"enable_cuda_graph": True}),)},
            "read and write the first one's memory; leave it out",
        ),
        ({"session_options": {"intra_op_num_thread": 1}}, "did you mean 'intra_op_num_threads'?"),
        ({"session_options": {"add_initializer": 1}}, "unknown session option 'add_initializer'"),
        ({"session_options": {"intra_op_num_threads": "two"}}, "'intra_op_num_threads' cannot be 'two'"),
        (
            {"session_options": {"log_severity_level": 4, "session.dynamic_block_base": "few"}},
            "'session.dynamic_block_base' cannot be 'few': ",
        ),
        (
            {"session_options": {"optimized_model_filepath": "no/such/folder/a.onnx"}},
            "'optimized_model_filepath' cannot be 'no/such/folder/a.onnx': ",
        ),
    ],
)
def test_what_onnx_runtime_does_not_know_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        session(**settings)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_for_the_optimized_model_is_not_written_where_the_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_text("theirs")
    model = onnx.parser.parse_model(NEGATION.replace("Neg", "Negation"))
    with pytest.raises(ExecutionError, match="Negation"):
        make_session(model, SessionSettings(session_options={"optimized_model_filepath": str(path)}), [(CPU, {})])
    assert path.read_text() == "theirs"


def test_options_that_only_go_together_are_not_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = ValueError("it needs the other one")
    monkeypatch.setattr(refused_options, "_refusal", lambda tried, _: None if len(tried) == 2 else alone)
    options = {"log_severity_level": 4, "session.disable_prepacking": "1"}
    assert refused_options.refused_option(SessionSettings(session_options=options), [(CPU, {})]) is None


def test_a_file_is_not_written_to_try_an_option(tmp_path: Path) -> None:
    options = {"ep.context_enable": "1", "ep.context_file_path": str(tmp_path / "context.onnx")}
    model = onnx.parser.parse_model(NEGATION.replace("Neg", "Negation"))
    with pytest.raises(ExecutionError, match="Negation"):
        make_session(model, SessionSettings(session_options=options), [(CPU, {})])
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_without_a_gpu_is_one_clear_line() -> None:
    with pytest.raises(RuntimeUnavailableError, match=r"no CUDA device: .* use the cpu provider") as caught:
        session(providers=("cuda", "cpu"))
    assert "\n" not in str(caught.value)


def test_a_provider_that_onnx_runtime_drops_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = [("CUDAExecutionProvider", {"user_compute_stream": "1"}), (CPU, {})]
    monkeypatch.setattr(ort, "InferenceSession", lambda model, options, providers, **rest: _CpuOnly())
    with pytest.raises(RuntimeUnavailableError, match="CUDAExecutionProvider does not work on this machine"):
        make_session(onnx.parser.parse_model(NEGATION), SessionSettings(), chosen)


@pytest.mark.parametrize(("precision", "told"), [("ieee", "0"), ("tf32", "1")])
def test_products_on_cuda_are_rounded_as_torchs_are(monkeypatch: pytest.MonkeyPatch, precision: str, told: str) -> None:
    """ONNX Runtime would round float32 to TF32 unless it is told; what the caller says stays."""
    asked = []

    def session(model: bytes, options: object, providers: list[Provider], **rest: object) -> _Everything:
        asked.append(providers[0][1]["use_tf32"])
        return _Everything()

    monkeypatch.setattr(ort, "InferenceSession", session)
    before, torch.backends.cuda.matmul.fp32_precision = torch.backends.cuda.matmul.fp32_precision, precision
    try:
        for given in ({}, {"use_tf32": "as told"}):
            chosen = [("CUDAExecutionProvider", {"user_compute_stream": "1", **given}), (CPU, {})]
            make_session(onnx.parser.parse_model(NEGATION), SessionSettings(), chosen)
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    assert asked == [told, "as told"]


def test_a_device_is_named_where_it_is_not_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime warns at every session that is told one."""
    monkeypatch.setattr(providers, "_prepare_cuda", lambda: None)
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CUDAExecutionProvider", CPU])
    for index, told in ((0, {}), (1, {"device_id": "1"})):
        (cuda, _) = SessionSettings().resolved_providers([torch.device("cuda", index)])
        assert cuda == ("CUDAExecutionProvider", told)


class _Everything:
    def get_providers(self) -> list[str]:
        return ["CUDAExecutionProvider", CPU]


class _CpuOnly:
    def get_providers(self) -> list[str]:
        return [CPU]


@pytest.mark.skipif("TensorrtExecutionProvider" not in ort.get_available_providers(), reason="a wheel without TensorRT")
@pytest.mark.skipif(torch.cuda.is_available(), reason="TensorRT might work")
def test_a_provider_that_fails_is_not_replaced_by_the_cpu(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Exception, match=r"TensorRT|Tensorrt") as caught:
        session(providers=("TensorrtExecutionProvider",))
    assert "\n" not in str(caught.value)
    assert "Falling back" not in capfd.readouterr().out
