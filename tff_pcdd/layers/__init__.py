"""Keras layers: heads with a fixed classifier, normalization, dropout and loss layers."""

from tff_pcdd.layers.dropout import StatelessDropout, dropout_seed
from tff_pcdd.layers.etf_heads import AdaptedETF, FixedETF, FixedHead, SparseETF
from tff_pcdd.layers.frames import DenseFrameInitializer, dense_frame
from tff_pcdd.layers.loss_layers import (
    EqualNorm,
    InterClassMargin,
    IntraClassDecorrelation,
    MaximalAngle,
)
from tff_pcdd.layers.normalization import (
    NORMALIZATION_MODES,
    BatchNormalization,
    FeatureNormalization,
)
from tff_pcdd.layers.parameters import Parameters
from tff_pcdd.layers.simplex import SimplexETFInitializer, etf_from_matrix, simplex_etf
from tff_pcdd.layers.sparse import (
    SPARSE_ETF_INITS,
    SparseETFInitializer,
    empty_class,
    optimize_sparse_etf,
    sparse_etf,
)
from tff_pcdd.layers.temperature import Temperature

__all__ = [
    "NORMALIZATION_MODES",
    "SPARSE_ETF_INITS",
    "AdaptedETF",
    "BatchNormalization",
    "DenseFrameInitializer",
    "EqualNorm",
    "FeatureNormalization",
    "FixedETF",
    "FixedHead",
    "InterClassMargin",
    "IntraClassDecorrelation",
    "MaximalAngle",
    "Parameters",
    "SimplexETFInitializer",
    "SparseETF",
    "SparseETFInitializer",
    "StatelessDropout",
    "Temperature",
    "dense_frame",
    "dropout_seed",
    "empty_class",
    "etf_from_matrix",
    "optimize_sparse_etf",
    "simplex_etf",
    "sparse_etf",
]
