"""Keras layers: fixed and adapted simplex ETF heads, and normalisation."""

from tff_pcdd.layers.etf_heads import AdaptedETF, FixedETF
from tff_pcdd.layers.normalization import (
    NORMALIZATION_MODES,
    BatchNormalization,
    FeatureNormalization,
)
from tff_pcdd.layers.simplex import SimplexETFInitializer, etf_from_matrix, simplex_etf

__all__ = [
    "NORMALIZATION_MODES",
    "AdaptedETF",
    "BatchNormalization",
    "FeatureNormalization",
    "FixedETF",
    "SimplexETFInitializer",
    "etf_from_matrix",
    "simplex_etf",
]
