"""Unmodified models, randomly initialised, with a batch each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from torch import Tensor, nn

Made = tuple[nn.Module, dict[str, Tensor]]
ROWS = 8


def ids(length: int = 16, most: int = 128) -> Tensor:
    return torch.randint(1, most, (ROWS, length), generator=torch.Generator().manual_seed(0))


def _hub(name: str, config: str, **options: Any) -> nn.Module:
    """A model of transformers; torchvision, which it looks for, need not fit this torch."""
    for op in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, op):
            schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            torch.library.define(f"torchvision::{op}", schema)
    import transformers

    transformers.logging.set_verbosity_error()
    return getattr(transformers, name)(getattr(transformers, config)(**options))


_TEXT = {"vocab_size": 128}
_ROPE = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip


def gpt2() -> Made:
    drop = {"resid_pdrop": 0.0, "attn_pdrop": 0.0, "embd_pdrop": 0.0}
    model = _hub(
        "GPT2LMHeadModel",
        "GPT2Config",
        **_TEXT,
        n_embd=64,
        n_layer=4,
        n_head=4,
        n_positions=64,
        **drop,
    )
    return model, {"input_ids": ids()}


def llama() -> Made:
    return _hub("LlamaForCausalLM", "LlamaConfig", **_TEXT, **_ROPE), {"input_ids": ids()}


def bert() -> Made:
    drop = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    size = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
    }
    model = _hub(
        "BertForMaskedLM", "BertConfig", **_TEXT, **size, max_position_embeddings=64, **drop
    )
    mask = (torch.arange(16)[None] < torch.arange(9, 9 + ROWS)[:, None]).long()
    return model, {"input_ids": ids(), "attention_mask": mask}


def vit() -> Made:
    drop = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    size = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
    }
    model = _hub(
        "ViTForImageClassification", "ViTConfig", **size, image_size=32, patch_size=8, **drop
    )
    return model, {"pixel_values": _noise(3, 32, 32)}


def t5() -> Made:
    size = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}
    model = _hub(
        "T5ForConditionalGeneration", "T5Config", **_TEXT, **size, dropout_rate=0.0,
        decoder_start_token_id=0, pad_token_id=0,
    )  # fmt: skip
    return model, {"input_ids": ids(), "decoder_input_ids": ids(12)}


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x))


def encoder() -> Made:
    return Encoder(), {"x": _noise(16, 64)}


class Block(nn.Module):
    def __init__(self, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(16, 16, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(16, 16, 3, padding=1, bias=False)
        self.norm1, self.norm2, self.relu = norm(16), norm(16), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.norm1(self.conv1(x)))
        return self.relu(self.norm2(self.conv2(y)) + x)


class Resnet(nn.Module):
    def __init__(self, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.blocks = nn.Sequential(*[Block(norm) for _ in range(4)])
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def resnet() -> Made:
    return Resnet(lambda c: nn.GroupNorm(4, c)), {"x": _noise(3, 16, 16)}


def batchnorm() -> Made:
    return Resnet(nn.BatchNorm2d), {"x": _noise(3, 16, 16)}


def _noise(*shape: int) -> Tensor:
    return torch.randn(ROWS, *shape, generator=torch.Generator().manual_seed(0))


MODELS: dict[str, Callable[[], Made]] = {
    one.__name__: one for one in (gpt2, llama, bert, vit, t5, encoder, resnet, batchnorm)
}


def make(name: str) -> Made:
    torch.manual_seed(0)
    return MODELS[name]()


def loss(output: Any, batch: Any) -> tuple[Tensor, Tensor]:
    """Cross-entropy over positions of uneven number. What is right, and which positions count,
    follows from the row alone."""
    logits = next(one for one in pytree.tree_leaves(output) if isinstance(one, Tensor)).float()
    logits = logits.reshape(len(logits), -1, logits.shape[-1])
    first = next(iter(batch.values()))
    salt = (first.reshape(len(first), -1).abs().sum(1) * 3).long() % 11
    position = torch.arange(logits.shape[1])[None] + salt[:, None]
    target, counts = position % logits.shape[-1], position % 3 != 0
    each = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none")
    return (each * counts.flatten()).sum(), counts.sum()
