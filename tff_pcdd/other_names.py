"""Names of settings in other frameworks and in papers, for the error about an unknown one."""

from __future__ import annotations

from collections.abc import Iterable

from tff_pcdd.errors import nearest

# For each setting or flag, or the first of several that a program has, what others call it.
_OTHER_NAMES: dict[tuple[str, ...], str] = {
    ("client_learning_rate",): "lr learning_rate local_lr client_lr base_lr eta step_size",
    ("client_momentum",): "momentum local_momentum mom",
    ("client_weight_decay",): "weight_decay wd decay l2 reg",
    ("client_clip_norm",): "clip clip_norm grad_clip max_grad_norm max_norm",
    ("local_epochs",): "epochs epoch local_ep local_epoch num_epochs client_epochs n_epochs E",
    ("rounds",): (
        "num_rounds n_rounds comm_round comm_rounds communication_rounds global_rounds "
        "global_epochs total_rounds round T"
    ),
    ("batch_size",): "batch bs local_bs batchsize client_batch_size train_batch_size B",
    ("eval_batch_size",): "test_batch_size eval_batch",
    ("num_clients",): "clients n_clients num_users n_parties num_parties nodes n_nodes users K",
    ("new_clients",): "num_new_clients held_out_clients unseen_clients test_clients",
    ("new_client_names",): "held_out_sites unseen_sites test_sites new_sites leave_out",
    ("clients_per_round",): (
        "frac fraction fraction_fit join_ratio participation participation_rate sample_rate "
        "client_num_per_round num_clients_per_round cohort_size C"
    ),
    ("concentration",): "alpha dirichlet_alpha dir_alpha dirichlet beta",
    ("classes_per_client",): "n_classes_per_client num_classes_per_client",
    ("shards_per_client",): "shards num_shards shard_per_user shards_per_user",
    ("imbalance_factor",): "imb_factor imbalance imbalance_ratio IF",
    ("partition", "partitions"): "partition_method split partitioner data_split",
    ("algorithm", "algorithms"): "method methods algo alg strategy optimizer aggregation_method",
    ("aggregator",): "aggregation server_aggregation defense",
    ("dataset",): "data data_set data_name",
    ("data_dir",): "datadir data_path dataset_dir data_root dataroot root dataset_path",
    ("model",): "arch architecture net network backbone model_name",
    ("seed", "seeds"): "random_seed manual_seed rng_seed global_seed",
    ("eval_every",): "eval_interval test_every eval_frequency eval_freq evaluate_every test_freq",
    ("output_dir", "export_dir", "run_dir"): (
        "out output outdir out_dir output_dir save_dir log_dir logdir logs result_dir"
    ),
    ("run_dir",): "dir run directory checkpoint checkpoint_dir model_dir ckpt",
    ("export_dir",): "export_path",
    ("checkpoint_round",): "round step",
    ("checkpoint_every",): "save_every save_freq checkpoint_interval",
    ("devices",): "gpu gpus device cuda gpu_id use_gpu",
    ("client_parallelism", "workers"): "num_workers n_jobs parallelism jobs threads",
    ("validation_fraction",): "val_frac val_split validation_split val_size",
    ("overwrite",): "force restart",
    ("import",): "module plugin include",
    ("fedprox_mu",): "mu prox_mu",
}


def similar(name: str, known: Iterable[str]) -> list[str]:
    """The settings, flags or other names that a user may have meant, best first.

    Args:
        name: what the user wrote, without dashes.
        known: the names that there are.

    Example:
        >>> similar("lr", ["rounds", "client_learning_rate"])
        ['client_learning_rate']
        >>> similar("num_client", ["num_clients", "rounds"])
        ['num_clients']
        >>> similar("proj_dim", ["model", "projection_dim"])
        ['projection_dim']
        >>> similar("scale", ["rounds", "fedgela_scale"])
        ['fedgela_scale']
        >>> similar("fedetf_finetune", ["fedbabu_finetune", "fedetf_finetune_epochs"])
        ['fedetf_finetune_epochs']
    """
    known = list(known)
    # A name with dashes, or one that switches a Boolean flag off.
    plain = name.replace("-", "_")
    meant = [
        next((flag for flag in flags if flag in known), None)
        for flags, others in _OTHER_NAMES.items()
        if plain in others.split() or plain.lower() in others.split()
    ]
    found = [flag for flag in meant if flag is not None]
    # The name of an option in Python, such as `mu` of FedProx, without its method, or a name whose
    # last word is missing.
    parted = [flag for flag in known if flag.endswith(f"_{plain}") or flag.startswith(f"{plain}_")]
    return found[:1] or (parted if len(parted) <= 3 else []) or nearest(plain, known)
