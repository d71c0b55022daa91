"""The smallest model of each family of timm.

    python benchmarks/zoo.py --library timm --ways float32 bfloat16 training --write docs/zoo-timm.md

A family is a module of ``timm.models``; its smallest model has fewest parameters. Each has random weights, also where
training would begin at zero, sees two images of 64 x 64 pixels, or as small as it can, and is compared with eager: in
float32, in bfloat16 autocast, or in float32 in training mode, where dropout draws and batch norms count. What ran in
eager torch instead of ONNX Runtime is counted beside. No fault is planted: a verdict other than *agree* is a false
alarm, or a finding; in bfloat16 `visformer_tiny` shows [a fault of torch's](gallery/patch_embedding.md), on processors
with AMX alone. Families whose smallest model has more than a hundred million parameters are left out.
Where the verdict says that a model departs before ONNX, it is compiled once more with torch's own backend ``eager``,
and the page says how far that lies from the plain model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import timm
import torch
from torch import nn
from zoo_members import NotMade, draw_zeros

KINDS = (
    "adv_inception_v3",
    "beit_base_patch16_224",
    "cait_xxs24_224",
    "coat_tiny",
    "convit_tiny",
    "convmixer_768_32",
    "cpubone_nano",
    "crossvit_tiny_240",
    "cs3darknet_focus_s",
    "csatv2",
    "cspnext_tiny",
    "davit_tiny",
    "deit_tiny_patch16_224",
    "densenet121",
    "dla46x_c",
    "dpn48b",
    "edgenext_xx_small",
    "efficientformer_l1",
    "efficientformerv2_s0",
    "efficientvim_m1",
    "efficientvit_b0",
    "efficientvit_m0",
    "ens_adv_inception_resnet_v2",
    "ese_vovnet19b_slim_dw",
    "fasternet_t0",
    "fastvit_t8",
    "focalnet_tiny_srf",
    "gcvit_xxtiny",
    "ghostnet_050",
    "gmlp_ti16_224",
    "halonet_h1",
    "hardcorenas_b",
    "hgnetv2_b0",
    "hiera_tiny_224",
    "hrnet_w18_small",
    "iformer_t",
    "inception_next_atto",
    "inception_v4",
    "jx_nest_tiny",
    "lcnetv2_small",
    "legacy_seresnet18",
    "legacy_xception",
    "levit_128s",
    "lowformer_b0",
    "mobilenetv3_small_050",
    "mobilenetv5_base",
    "mobilevit_xxs",
    "mvitv2_tiny",
    "naflexvit_base_patch16_parfac_gap",
    "nasnetalarge",
    "nextvit_small",
    "pit_ti_224",
    "pnasnet5large",
    "poolformerv2_s12",
    "pvt_v2_b0",
    "qwen3_vit_88m",
    "rdnet_tiny",
    "regnetx_002",
    "repghostnet_050",
    "repvit_m1",
    "res2next50",
    "resnest14d",
    "resnetv2_18",
    "rexnet_100",
    "sam2_hiera_tiny",
    "samvit_base_patch16_224",
    "selecsls42",
    "sequencer2d_s",
    "shvit_s1",
    "skresnet18",
    "starnet_s050",
    "swiftformer_xs",
    "swin_tiny_patch4_window7_224",
    "swinv2_cr_tiny_224",
    "swinv2_tiny_window16_256",
    "test_byobnet",
    "test_coatnet",
    "test_convnext",
    "test_efficientnet",
    "test_mambaout",
    "test_nfnet",
    "test_resnet",
    "test_vit",
    "test_vit_relpos",
    "tiny_vit_5m_224",
    "tnt_s_legacy_patch16_224",
    "tresnet_m",
    "twins_svt_small",
    "visformer_tiny",
    "vit_tiny_patch16_dinov3_qkvb",
    "vit_tiny_r_s16_p8_224",
    "vitamin_small_224",
    "volo_d1_224",
    "xception41p",
    "xcit_nano_12_p8_224",
)
_PIXELS = 64
_LARGER: Mapping[str, int] = {
    "adv_inception_v3": 96,
    "crossvit_tiny_240": 240,
    "efficientformer_l1": 224,
    "ens_adv_inception_resnet_v2": 96,
    "halonet_h1": 256,
    "inception_v4": 96,
}
"""The pixels of those that take no smaller images."""


def build(kind: str) -> tuple[nn.Module, dict[str, Any]]:
    """A model in evaluation mode with random weights, and keyword arguments that it runs on.

    Raises NotMade where the installed version has no such model.
    """
    if not timm.is_model(kind):
        raise NotMade(f"timm {timm.__version__} has no {kind}")
    pixels = _LARGER.get(kind, _PIXELS)
    torch.manual_seed(0)
    model = _made(kind, pixels).float().eval()
    draw_zeros(model)
    arguments = {"x": torch.randn(2, 3, pixels, pixels, generator=torch.Generator().manual_seed(1))}
    with torch.no_grad():
        model(**arguments)
    return model, arguments


def _made(kind: str, pixels: int) -> nn.Module:
    """A model for images of that size, where it has to be told."""
    model: nn.Module
    try:
        model = timm.create_model(kind, img_size=pixels)
    except TypeError:
        model = timm.create_model(kind)
    return model


def kinds() -> list[str]:
    """Every model that stands for a family."""
    return [*KINDS]
