"""The interface of embedders, and the choice of one for the registry.

Knows no model: each has its own file in `embedders`, loaded only when it is chosen.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from mq9.registry.embedders.blend import Part

# What the similarity by MiniLM counts in `blend`; the rest is the other model's.
MINILM_SHARE = 0.6

Name = Literal["auto", "blend", "light", "minilm"]


class Embedder(Protocol):
    """Turns texts into vectors whose dot product says how close their meanings are."""

    @property
    def id(self) -> str:
        """Changes whenever the vectors would: with the model, its version, or the preparation."""

    @property
    def dimensions(self) -> int:
        """The length of each vector."""

    def embed(self, texts: "Sequence[str]") -> "NDArray[np.float32]":
        """One row of length 1 per text, the same for the same text; blocks."""


class EmbedderMissingError(Exception):
    """The embedder that was asked for is not installed."""


def load_embedder(name: Name = "auto") -> Embedder:
    """The embedder of that name; `auto` is `blend`, by onnxruntime where that is installed.

    `light` is the faster half of `blend`, and knows more languages than English; `minilm` is the
    other half.
    """
    embedder = _load(name)
    # For all of the process, once numpy is loaded. Threads of a small product wait for each other
    # more than they compute, and the broker needs the other cores.
    import_module("threadpoolctl").threadpool_limits(limits=1, user_api="blas")
    return embedder


def _load(name: Name) -> Embedder:
    from mq9.registry.embedders.blend import BlendedEmbedder

    has_onnxruntime = find_spec("onnxruntime") is not None
    if name == "light":
        return BlendedEmbedder((1.0, _universal()))
    if name == "minilm":
        if not has_onnxruntime:
            raise EmbedderMissingError(
                "the embedder minilm needs onnxruntime, which is not installed: "
                "pip install 'mq9[semantic]', or choose the embedder blend"
            )
        return BlendedEmbedder((1.0, _minilm(with_onnxruntime=True)))
    if name in ("auto", "blend"):
        minilm = _minilm(with_onnxruntime=name == "auto" and has_onnxruntime)
        return BlendedEmbedder((1 - MINILM_SHARE, _universal()), (MINILM_SHARE, minilm))
    raise ValueError(f"no embedder is called {name!r}: choose auto, blend, light or minilm")


def _universal() -> "Part":
    from mq9.registry.embedders.universal import UniversalEmbedder

    return UniversalEmbedder()


def _minilm(*, with_onnxruntime: bool) -> "Part":
    from mq9.registry.embedders.minilm import MiniLmEmbedder

    return MiniLmEmbedder(with_onnxruntime=with_onnxruntime)
