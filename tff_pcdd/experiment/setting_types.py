"""The names and types of the flat settings, for editors and type checkers.

`python -m tests.setting_types` makes this file from the declarations of the settings.
"""

from __future__ import annotations

from typing import Literal, TypedDict


class Settings(TypedDict, total=False):
    """The flat settings of an experiment, with their defaults; None stands for the default."""

    # Method.

    algorithm: str | None  # fedavg
    client_weighting: Literal["published", "uniform", "samples"] | None  # published
    apfl_alpha: float | None  # 0.5
    apfl_adaptive: bool | None  # True
    ditto_pull: float | None  # 1.0
    fedala_layers: int | None  # 1
    fedala_share: float | None  # 0.8
    fedala_weight_learning_rate: float | None  # 1.0
    fedala_weight_epochs: int | None  # 1
    fedavg_realign: bool | None  # False
    fedbabu_finetune: Literal["full", "head", "body"] | None  # full
    feddc_alpha: float | None  # 0.01
    feddc_control: Literal["code", "paper", "none"] | None  # code
    prototypes_mu2: float | None  # 0.0001
    feddecorr_beta: float | None  # 0.1
    feddecorr_form: Literal["code", "paper"] | None  # code
    feddyn_alpha: float | None  # 0.01
    fedetf_temperature: float | None  # 1.0
    fedetf_finetune_cycles: int | None  # 1
    fedetf_finetune_epochs: int | None  # 3
    fedge_scale: float | None  # 1.0
    fedge_features: Literal["l2", "bn", "bn_l2"] | None  # l2
    fedgela_scale: float | None  # 1.0
    fedgela_features: Literal["l2", "bn", "bn_l2"] | None  # l2
    fedgela_adaptation: Literal["linear", "sqrt", "exp", "relative", "none"] | None  # linear
    fedgela_masked: bool | None  # False
    fedgela_classifier: Literal["etf", "trainable"] | None  # etf
    fedgen_generative: float | None  # 10.0
    fedgen_distillation: float | None  # 10.0
    fedgen_noise_dim: int | None  # 64
    fedgen_hidden_dim: int | None  # 256
    fedgen_output: Literal["relu", "linear"] | None  # relu
    fedgen_generator_steps: int | None  # 50
    fedgen_generator_batch: int | None  # 32
    fedgen_generator_learning_rate: float | None  # 0.0003
    fedlc_tau: float | None  # 1.0
    fedlc_denominator: Literal["all", "others"] | None  # all
    fedloge_norm: float | None  # 2.0
    fedloge_sparsity: float | None  # 0.6
    fedloge_initialization: (
        Literal["etf", "xavier", "gaussian", "uniform", "orthogonal", "kaiming"] | None
    )  # etf
    fedloge_frame_loss: Literal["cross_entropy", "dot_regression"] | None  # cross_entropy
    fedloge_global_head: Literal["psi", "frame"] | None  # psi
    fedloge_scale: float | None  # 1.7
    fedloge_realign: bool | None  # True
    fedloge_realign_bias: Literal["keep", "drop"] | None  # keep
    fedloge_personal_head: (
        Literal["realigned", "phi+realigned", "realigned+psi", "phi+psi"] | None
    )  # realigned
    fedloge_local_lengths: Literal["phi", "counts"] | None  # phi
    fedloge_finetune_epochs: int | None  # 0
    fedmr_mu1: float | None  # 0.0001
    fedmr_mu2: float | None  # 0.0001
    fedmr_form: Literal["frobenius", "offdiagonal", "code"] | None  # frobenius
    fedmr_reading: Literal["all", "local", "missing", "nomargin"] | None  # all
    fedmr_normalize: bool | None  # False
    fedmr_inter_samples: int | None  # 0
    fedmr_warmup_rounds: int | None  # 0
    fedmr_prototype_share: float | None  # 1.0
    fedntd_beta: float | None  # 1.0
    fedntd_temperature: float | None  # 1.0
    fedpac_distance_weight: float | None  # 1.0
    fedpac_collaborate: bool | None  # True
    fedpac_head_epochs: int | None  # 1
    fedpac_head_learning_rate: float | None  # 0.1
    fedproc_contrast_weight: float | None  # 1.0
    fedproc_temperature: float | None  # 0.5
    fedproc_projection_width: int | None  # 256
    fedproto_distance_weight: float | None  # 1.0
    fedproto_predict: Literal["prototype", "head"] | None  # prototype
    fedproto_candidates: Literal["own", "all"] | None  # own
    fedprox_mu: float | None  # 0.01
    fedrela_share: float | None  # 0.05
    fedrela_start: float | None  # 0.8
    fedrela_rate_factor: float | None  # 0.1
    fedrep_body_epochs: int | None  # 1
    fedrod_gamma: float | None  # 1.0
    fedrs_alpha: float | None  # 0.5
    fedrs_graded: bool | None  # False
    fedsol_rho: float | None  # 1.0
    fedsol_temperature: float | None  # 3.0
    fedsol_perturb: Literal["all", "head"] | None  # all
    fedvls_distillation: float | None  # 0.1
    fedvls_suppression: float | None  # 0.005
    fedyoyo_distillation: float | None  # 4.0
    fedyoyo_tau: float | None  # 1.5
    fedyoyo_gamma: float | None  # 0.1
    fedyoyo_temperature: float | None  # 1.5
    fedyoyo_warmup: int | None  # 50
    fedyoyo_strong_view: bool | None  # True
    logitadjust_tau: float | None  # 1.0
    moon_mu: float | None  # 5.0
    moon_temperature: float | None  # 0.5
    moon_projection_width: int | None  # 256
    pfedme_pull: float | None  # 15.0
    pfedme_inner_steps: int | None  # 5
    pfedme_inner_learning_rate: float | None  # 0.05
    pfedme_beta: float | None  # 1.0
    ratioloss_alpha: float | None  # 1.0
    ratioloss_beta: float | None  # 0.1
    ratioloss_cap: float | None  # 5000.0
    ratioloss_auxiliary: int | None  # 32
    scaffold_server_step: float | None  # 1.0
    scaffold_control: bool | None  # True
    head_calibration: str | None  # none
    ccvr_epochs: int | None  # 10
    ccvr_learning_rate: float | None  # 0.01
    ccvr_virtual_features: int | None  # 500
    creff_epochs: int | None  # 300
    creff_learning_rate: float | None  # 0.01
    creff_features: int | None  # 100
    creff_matching_steps: int | None  # 100
    creff_matching_learning_rate: float | None  # 0.1
    fednpc_epochs: int | None  # 9
    fednpc_learning_rate: float | None  # 0.1
    fednpc_features: int | None  # 10000

    # Data.

    dataset: str | None  # digits
    data_dir: str | None
    max_json_bytes: int | None  # 250000000
    max_json_depth: int | None  # 20
    augmentation: Literal["none", "standard", "reflect", "rotation"] | None  # none
    input_normalization: Literal["dataset", "imagenet", "none"] | None  # dataset
    max_image_pixels: int | None  # 50000000
    test_fraction: float | None
    test_seed: int | None  # 0
    join_names: bool | None  # False
    min_site_samples: int | None
    small_sites: Literal["leave_out", "join"] | None  # leave_out
    image_size: int | None
    image_channels: int | None
    image_range: str | None
    skip_broken_images: bool | None  # False
    split_centres: int | None
    num_classes: int | None
    group_pattern: str | None
    missing: Literal["refuse", "drop", "keep"] | None  # refuse
    missing_markers: str | None
    label_column: str | None  # label
    site_column: str | None  # site
    path_column: str | None  # path
    path_pattern: str | None
    split_column: str | None
    group_column: str | None
    feature_columns: str | None
    categorical_columns: str | None
    impute: Literal["median", "mean"] | None
    partition: str | None  # class
    num_clients: int | None  # 10
    classes_per_client: int | None  # 2
    class_order: Literal["fixed", "shuffled"] | None  # fixed
    concentration: float | None  # 0.5
    min_samples: int | None  # 10
    assignment: Literal["class", "sample", "client"] | None  # class
    local_test: Literal["disjoint", "overlapping"] | None  # disjoint
    max_clients: int | None
    size_concentration: float | None  # 0.5
    shards_per_client: int | None  # 2
    imbalance_factor: float | None
    max_train_samples: int | None
    max_test_samples: int | None
    validation_fraction: float | None  # 0.0
    new_clients: int | None  # 0
    new_client_names: str | None

    # Seeds.

    data_seed: int | None
    new_clients_seed: int | None

    # Model.

    model: str | None  # simple_cnn
    normalization: Literal["batch", "group"] | None  # batch
    pretrained_weights: str | None
    projection_dim: int | None
    bn: Literal["averaged", "personal"] | None  # averaged
    precision: Literal["float32", "tf32", "bfloat16", "auto"] | None  # float32

    # Seeds.

    model_seed: int | None

    # Training.

    rounds: int | None  # 30
    clients_per_round: int | None  # 0
    local_epochs: int | None  # 5
    batch_size: int | None  # 32
    client_optimizer: str | None  # sgd
    client_learning_rate: float | None  # 0.01
    client_beta1: float | None  # 0.9
    client_beta2: float | None  # 0.999
    client_epsilon: float | None  # 1e-08
    client_weight_decay: float | None  # 0.0001
    client_clip_norm: float | None  # 20.0
    client_momentum: float | None  # 0.9
    schedule: str | None  # constant
    warmup_rounds: int | None  # 0
    schedule_final: float | None  # 0.01
    schedule_decay: float | None  # 0.998
    schedule_milestones: str | None  # 0.5,0.75
    schedule_drop: float | None  # 0.1
    min_local_epochs: int | None  # 0
    straggler_share: float | None  # 0.0
    dropped_share: float | None  # 0.0
    cohort_sampling: Literal["uniform", "samples", "round_robin"] | None  # uniform
    nonfinite: Literal["stop", "exclude"] | None  # stop
    deterministic: bool | None  # False

    # Seeds.

    cohort_seed: int | None
    batch_seed: int | None

    # Training.

    warm_start: str | None

    # Aggregation.

    aggregator: str | None  # mean
    aggregator_zeroing: bool | None  # True
    aggregator_clipping: bool | None  # True
    compressed_bits: int | None  # 8
    compressed_threshold: int | None  # 20000
    dp_noise_multiplier: float | None  # 1.0
    dp_clip: float | None  # 1.0
    dp_delta: float | None  # 1e-05
    server_optimizer: str | None  # sgd
    server_learning_rate: float | None  # 1.0
    server_beta1: float | None  # 0.0
    server_tau: float | None  # 0.001
    server_beta2: float | None  # 0.99
    server_momentum: float | None  # 0.9

    # Evaluation.

    eval_every: int | None  # 1
    personal_eval_every: int | None
    metrics: str | None
    early_stopping_patience: int | None

    # Seeds.

    seed: int | None  # 0
