"""A folder for a bug report runs where there is no torch, and says what the comparison said."""

from __future__ import annotations

import json
import operator
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from dort_compare import DebugBackend, compare
from dort_compare.cli import main
from dort_compare.dump import graphs_in
from dort_compare.errors import DumpError, UsageError
from dort_compare.lowering import registry
from dort_compare.offline import check, repro
from dort_compare.offline.runs import dumped_run
from dort_compare.repro import case_of, write_case

aten = torch.ops.aten
CPU = [("CPUExecutionProvider", {})]
WITHOUT_TORCH = """\
import runpy, sys
for name in ("torch", "dort_compare", "onnx", "safetensors", "ml_dtypes", "onnxscript"):
    sys.modules[name] = None
sys.dont_write_bytecode = True
"""


class Net(nn.Module):
    """Products, a norm of several results, a mask, comparisons, integers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.norm(self.linear(x).tanh())
        masked = y.masked_fill(y > 1, torch.finfo(y.dtype).min)
        return masked.softmax(-1) * y.topk(2)[0].sum(), masked.argmax(-1)


@pytest.fixture(scope="module", params=[None, torch.bfloat16], ids=["float32", "bfloat16"])
def dump(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forward and backward, with a tanh that is wrong by a twentieth."""
    right = registry.registered()[aten.tanh.default]
    folder = tmp_path_factory.mktemp("repro") / "dump"

    def wrong(op: Any, x: Any) -> Any:
        return op.Mul(right(op, x), op.const(1.05, op.result.dtype))

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry._TABLE, aten.tanh.default, wrong)
        torch.manual_seed(0)
        report = compare(
            Net(),
            (torch.randn(4, 6),),
            backward=True,
            loss=lambda found: found[0].sum(),
            autocast=request.param,
            dump=folder,
        )
    assert [cause.target for cause in report.causes] == ["aten.tanh.default"]
    return folder


def alone(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Runs a program in the folder with nothing of ours, and no torch, in reach."""
    command = [sys.executable, "-I", "-c", WITHOUT_TORCH + program]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env={"PATH": ""}, check=False)


SCRIPT = "runpy.run_path('repro.py', run_name='__main__')"
PYTEST = "sys.path.insert(0, '.'); import pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', '.']))"


def test_what_departs_departs_there_too(dump: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    repro(dump, "tanh", out)
    shown = alone(out, SCRIPT)
    assert shown.returncode == 1, shown.stderr
    assert "DEPARTS (onnx) tanh" in shown.stdout
    tested = alone(out, PYTEST)
    assert tested.returncode == 1, tested.stdout + tested.stderr
    assert "noise is" in tested.stdout
    assert "aten.tanh.default" in (out / "README.md").read_text()


def transformed(x: Tensor) -> Tensor:
    spectrum = torch.fft.rfft(x.sin())
    return torch.fft.irfft(torch.fft.fft(spectrum * 2j + spectrum.conj()))


@pytest.mark.parametrize("wrong", [aten._fft_r2c.default, aten._fft_c2c.default])
def test_of_a_complex_result_the_parts_are_shown(wrong: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = registry.registered()[wrong]

    def scaled(op: Any, *args: Any) -> Any:
        return op.Mul(right(op, *args), op.const(1.001, torch.float32))

    monkeypatch.setitem(registry._TABLE, wrong, scaled)
    torch.manual_seed(0)
    torch.compile(transformed, backend=DebugBackend(dump=tmp_path / "dump"))(torch.randn(2, 12))
    run = dumped_run(graphs_in(tmp_path / "dump")[0], "cpu", CPU)
    departing = {
        name: case_of(run, name).departs for name in ("_fft_r2c", "view_as_real_default", "_fft_c2c", "_fft_c2r")
    }
    is_first = wrong is aten._fft_r2c.default
    assert list(departing.values()) == [is_first, is_first, not is_first, False]


def test_what_agrees_agrees_there_too(dump: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = dumped_run(graphs_in(dump)[0], "cpu", CPU)
    several = next(node for node in run.graph_module.graph.nodes if node.target is operator.getitem)
    repro(dump, several.name, out, 0)
    shown = alone(out, SCRIPT)
    count = len(several.args[0].users)
    assert (shown.returncode, shown.stdout.count("agrees")) == (0, count), shown.stdout + shown.stderr
    tested = alone(out, PYTEST)
    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.parametrize("stride", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_every_call_of_a_graph_can_be_cut_out(dump: Path, tmp_path: Path, stride: int) -> None:
    """Each on torch's operands: only the wrong one departs."""
    compared = 0
    for graph in graphs_in(dump):
        run = dumped_run(graph, "cpu", CPU)
        calls = [node for node in run.graph_module.graph.nodes if node.op == "call_function"]
        calls = [node for node in calls if node.target is not operator.getitem]
        for call in calls[::stride]:
            out = tmp_path / f"{graph.name}.{call.name}"
            case = case_of(run, call.name)
            write_case(case, out)
            assert case.departs == (call.target is aten.tanh.default), call.name
            for name, *_, departs in runpy.run_path(str(out / "repro.py"))["rows"]():
                assert (departs is None) == (call.target is not aten.tanh.default), (call.name, name)
                compared += 1
    assert compared > 20 / stride


def test_the_model_holds_no_more_than_the_node_needs(dump: Path, tmp_path: Path) -> None:
    run = dumped_run(graphs_in(dump)[0], "cpu", CPU)
    write_case(case_of(run, "argmax"), tmp_path / "out")
    model = onnx.load(tmp_path / "out" / "model.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert len(model.graph.input) == len(load_file(tmp_path / "out" / "operands.safetensors")) == 1
    assert len(model.graph.node) < len(run.onnx_model.graph.node) / 2
    assert load_file(tmp_path / "out" / "torch.safetensors")["argmax"].dtype == torch.int64
    assert load_file(tmp_path / "out" / "float64.safetensors") == {}
    assert json.loads((tmp_path / "out" / "case.json").read_text())["noise_floors"] == {"argmax": 0.0}


def test_a_node_that_onnx_runtime_refuses_is_shown_too(dump: Path, tmp_path: Path) -> None:
    run = dumped_run(graphs_in(dump)[0], "cpu", CPU)
    next(node for node in run.onnx_model.graph.node if node.op_type == "Tanh").op_type = "Nonsense"
    case = case_of(run, "tanh")
    assert "Nonsense" in str(case.results[0].error)
    write_case(case, tmp_path / "out")
    assert "Nonsense" in (tmp_path / "out" / "README.md").read_text()
    assert "Nonsense" in alone(tmp_path / "out", SCRIPT).stderr


# Wrong calls.


@pytest.mark.parametrize(
    ("node", "graph", "message"),
    [
        ("tahn", None, r"no call 'tahn' in model_0, model_1 of .*dump, did you mean 'tanh'\?; check names those"),
        ("primals_1", 0, "no call 'primals_1' in model_0 of "),
        ("tanh", 9, "has no graph '9'"),
    ],
)
def test_a_wrong_call_is_one_line(dump: Path, tmp_path: Path, node: str, graph: int | None, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        repro(dump, node, tmp_path / "out", graph)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_node_of_several_graphs_needs_the_graph(tmp_path: Path) -> None:
    compiled = torch.compile(torch.tanh, backend=DebugBackend(dump=tmp_path / "dump"), dynamic=False)
    compiled(torch.ones(2))
    compiled(torch.ones(3))
    with pytest.raises(UsageError, match="graphs 0, 1 have a node tanh; choose one with --graph"):
        repro(tmp_path / "dump", "tanh", tmp_path / "out")
    repro(tmp_path / "dump", "tanh", tmp_path / "out", 1)
    assert load_file(tmp_path / "out" / "torch.safetensors")["tanh"].shape == (3,)


def test_a_folder_is_written_whole_or_not_at_all(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("mine")
    for folder in (tmp_path / "mine", dump):
        with pytest.raises(SystemExit) as stopped:
            main(["repro", str(dump), "tanh", "--out", str(folder)])
        assert stopped.value.code == 2
        assert "is not empty, so it is not replaced" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]

    def fail(*args: object) -> None:
        raise DumpError("no space left")

    monkeypatch.setattr("dort_compare.repro.folder._readme", fail)
    with pytest.raises(DumpError):
        repro(dump, "tanh", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("node", "found"),
    [("tanh", "shows the difference"), ("argmax", "shows that argmax agrees; check names what departs")],
)
def test_the_command_says_where_it_wrote_what(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], node: str, found: str
) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(SystemExit) as stopped:
        main(["repro", str(dump), node, "--graph", "0", "--out", str(tmp_path / "out")])
    assert stopped.value.code == 0
    assert capsys.readouterr().out.endswith(f"repro.py {found}\n")
    assert (tmp_path / "out" / "model.onnx").exists()


def test_a_repro_can_be_run_by_others_wherever_it_lies(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "my bug"
    with pytest.raises(SystemExit):
        main(["repro", str(dump), "tanh", "--graph", "0", "--out", str(out)])
    assert f"python '{out / 'repro.py'}' " in capsys.readouterr().out
    assert len({file.stat().st_mode for file in out.iterdir() if file.is_file()}) == 1


class Sums(nn.Module):
    """Thousands of numbers into one place, which torch's kernel adds up in half precision."""

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        return torch.zeros(4, dtype=x.dtype).index_add(0, places, x)


class Best(nn.Module):
    """The largest numbers of many equal ones, whose order is open."""

    def forward(self, x: Tensor) -> Any:
        return x.topk(40)


def shown_of(model: nn.Module, args: tuple[Tensor, ...], node: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What the script prints for one node of a model."""
    compare(model, args, dump=folder / "dump")
    repro(folder / "dump", node, folder / "out")
    return alone(folder / "out", SCRIPT)


def test_a_departure_of_torchs_is_told_as_torchs(tmp_path: Path) -> None:
    args = torch.full((3000,), 0.7, dtype=torch.bfloat16), torch.zeros(3000, dtype=torch.int64)
    shown = shown_of(Sums(), args, "index_add", tmp_path)
    assert (shown.returncode, "DEPARTS (torch) index_add" in shown.stdout) == (1, True), shown.stdout + shown.stderr
    assert "it is torch that departs" in (tmp_path / "out" / "README.md").read_text()


def test_where_torch_departs_the_noise_of_its_error_does_not_blame_onnx(tmp_path: Path) -> None:
    """The floor is what torch may err by, and ONNX may err by more: twice that, where torch does."""
    compare(nn.Tanh(), (torch.rand(8),), dump=tmp_path / "dump")
    (graph,) = graphs_in(tmp_path / "dump")
    case = case_of(dumped_run(graph, "cpu", CPU), "tanh")
    (right,) = case.results
    assert right.value is not None
    torchs, exact = right.value + 52e-4, right.value.double() + 12e-4
    result = replace(right, expected=torchs, exact=exact, noise_floor=8e-4, torch_departs=True)
    write_case(replace(case, results=[result]), tmp_path / "out")
    shown = alone(tmp_path / "out", SCRIPT)
    assert (shown.returncode, "DEPARTS (torch) tanh" in shown.stdout) == (1, True), shown.stdout + shown.stderr
    assert result.departs


def test_a_full_disk_is_one_line_and_leaves_nothing(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object, **_given: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(onnx, "save", full)
    with pytest.raises(DumpError, match=r"^cannot write .*out: No space left on device; choose a folder"):
        repro(dump, "tanh", tmp_path / "out", 0)
    assert not list(tmp_path.iterdir())


def test_another_order_of_equal_elements_is_right_too(tmp_path: Path) -> None:
    x = torch.randint(0, 4, (3, 200), generator=torch.Generator().manual_seed(0)).float()
    shown = shown_of(Best(), (x,), "topk", tmp_path)
    assert (shown.returncode, shown.stdout.count("agrees")) == (0, 2), shown.stdout + shown.stderr
    also = load_file(tmp_path / "out" / "also_right.safetensors")
    torchs = load_file(tmp_path / "out" / "torch.safetensors")
    assert not torch.equal(also["getitem_1"], torchs["getitem_1"])
    wrong = (tmp_path / "out" / "repro.py").read_text().replace("in run().items()", "in wrong().items()")
    wrong += "\n\ndef wrong():\n    return {name: value[..., ::-1] for name, value in run().items()}\n"
    wrong = wrong.replace('if __name__ == "__main__":\n    main()\n', "") + "\nmain()\n"
    (tmp_path / "out" / "repro.py").write_text(wrong)
    assert alone(tmp_path / "out", SCRIPT).returncode == 1


def gelu(x: Tensor) -> Tensor:
    return nn.functional.gelu(x).cos()


def by_tanh(right: Any) -> Any:
    return lambda op, x, **_: right(op, x, approximate="tanh")


def without_nan(right: Any) -> Any:
    return lambda op, x: op.Where(op.IsNaN(x), 0, right(op, x))


def beside_a_huge_channel() -> Tensor:
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    x[:, 0] *= 1e4
    return x


def in_steps(right: Any) -> Any:
    """A right GELU whose nodes round to half precision on their way."""

    def lowered(op: Any, x: Any, **_: Any) -> Any:
        half, erf = op.Mul(x, 0.5), op.Erf(op.Mul(x, 2**-0.5))
        return op.Mul(half, op.Add(erf, 1))

    return lowered


def test_nodes_that_round_on_their_way_are_right_there_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._TABLE, aten.gelu.default, in_steps(None))
    x = torch.linspace(-6, 6, 64).half()
    torch.compile(gelu, backend=DebugBackend(dump=tmp_path / "dump"))(x)
    assert check(tmp_path / "dump").verdict == "agree"
    assert not repro(tmp_path / "dump", "gelu", tmp_path / "out")


JUDGED_IN_PARTS: dict[str, tuple[Any, Any, Any, Tensor]] = {
    "small elements": (aten.gelu.default, by_tanh, gelu, beside_a_huge_channel()),
    "small elements in bfloat16": (aten.gelu.default, by_tanh, gelu, torch.linspace(-6, 6, 24).bfloat16()),
    "NaN": (aten.relu.default, without_nan, lambda x: x.log().relu().sin(), torch.linspace(-1, 1, 6)),
}


@pytest.mark.parametrize("is_wrong", [True, False])
@pytest.mark.parametrize("name", JUDGED_IN_PARTS)
def test_what_check_blames_is_shown(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_wrong: bool) -> None:
    target, wrong, function, x = JUDGED_IN_PARTS[name]
    if is_wrong:
        monkeypatch.setitem(registry._TABLE, target, wrong(registry.registered()[target]))
    torch.compile(function, backend=DebugBackend(dump=tmp_path / "dump"))(x)
    assert [cause.target for cause in check(tmp_path / "dump").causes] == [str(target)] * is_wrong
    assert repro(tmp_path / "dump", str(target).split(".")[1], tmp_path / "out") is is_wrong
    shown = alone(tmp_path / "out", SCRIPT)
    assert shown.returncode == is_wrong, shown.stdout + shown.stderr
