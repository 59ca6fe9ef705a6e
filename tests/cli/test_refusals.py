"""Commands that cannot be used: one line that names flag and value, status 2, nothing written.

Most run in this process; one of each kind of refusal runs as users call it.
"""

import re
import subprocess
import sys

import pytest

from tests.cli.stages import without_stages
from tff_pcdd import directories, methods, training
from tff_pcdd.training import ExperimentConfig, run_directory

# Of each kind a few: what is refused for which reason is tested in tests/data/test_config.py and
# tests/training/test_config.py.
TRAIN = [
    # unknown names
    (["--algorithm=fedsgd"], "--algorithm=fedsgd: choose one of"),
    (["--algorithm=fedgala"], "; did you mean fedala or fedgela?\n"),
    (["--dataset=mnist"], "; did you mean femnist or fashion_mnist?\n"),
    (["--dataset=mnsit"], "; did you mean fashion_mnist?\n"),
    (["--runtime=rya"], "--runtime=rya: choose one of inprocess, ray, tff; did you mean ray?\n"),
    (["--diagnostics=nc,feature"], "pruning, tsne; did you mean features?\n"),
    (["--tracking=mlfow"], "'mlfow' is not one of mlflow, wandb; did you mean mlflow?\n"),
    (["--vesion"], "--vesion: there is no such flag; did you mean --version?\n"),
    (["--flagfle=x"], "--flagfle: there is no such flag; did you mean --flagfile?\n"),
    # numbers out of bounds
    (["--num_clients=0"], "--num_clients=0: must be at least 1"),
    (["--client_learning_rate=0"], "--client_learning_rate=0.0: must be greater than 0"),
    (["--client_learning_rate=nan"], "--client_learning_rate=nan: must be a finite number"),
    (["--rounds=9223372036854775808"], "--rounds=9223372036854775808: must be a number of at most"),
    (["--num_clients=2147483648"], "--num_clients=2147483648: must be at most 2147483647"),
    (
        ["--partition=dirichlet", "--concentration=1e-100"],  # drawing would never end
        "--concentration=1e-100: must be at least 1e-09",
    ),
    (
        ["--partition=dirichlet", "--concentration=1e308"],
        "--concentration=1e+308: must be at most 1000000.0",
    ),
    # numbers that do not go together
    (["--clients_per_round=11"], "--clients_per_round=11: there are only --num_clients=10 clients"),
    # flags of something not chosen
    (["--fedgela_scale=2"], "--fedgela_scale=2.0: applies to fedgela, and the method is fedavg"),
    (["--concentration=0.5"], "--concentration=0.5: applies only with --partition=dirichlet"),
    # what is not a flag or not a value
    (["--rounds=three"], "--rounds=three: must be a whole number"),
    (["--client_learning_rate=fast"], "--client_learning_rate=fast: must be a number"),
    (["--overwrite=perhaps"], "--overwrite=perhaps: must be true or false"),
    (["--nosuchthing=1"], "--nosuchthing: there is no such flag; --help lists them"),
    (["--num_client=3"], "--num_client: there is no such flag; did you mean --num_clients"),
    (
        ["--nosuchthing=1", "--rond", "4", "--sed=1"],
        "--nosuchthing: there is no such flag; --help lists them; --rond: there is no such flag; "
        "did you mean --rounds? --sed: there is no such flag; did you mean --seed?\n",
    ),
    (["--num-clients=3"], "--num-clients: there is no such flag; did you mean --num_clients"),
    (["--no-report"], "--no-report: there is no such flag; write --noreport\n"),
    (["--jit_compile"], "--jit_compile: there is no such flag; write --compile=step"),
    (["--nojit_compile"], "--nojit_compile: there is no such flag; write --compile=off"),
    *(
        ([f"--{other}=1"], f"; did you mean --{flag}?")
        for other, flag in {
            "lr": "client_learning_rate",
            "learning_rate": "client_learning_rate",
            "epochs": "local_epochs",
            "alpha": "concentration",
            "method": "algorithm",
            "num_rounds": "rounds",
            "comm_round": "rounds",
            "batch": "batch_size",
            "bs": "batch_size",
            "clients": "num_clients",
            "fraction_fit": "clients_per_round",
            "momentum": "client_momentum",
            "wd": "client_weight_decay",
            "arch": "model",
            "gpu": "devices",
            "mu": "fedprox_mu",
            "scale": "fedge_scale or --fedgela_scale or --fedloge_scale",
        }.items()
    ),
    (["fedavg"], "unexpected argument 'fedavg'; flags start with --\n"),
    (["--rounds", "3", "4"], "unexpected argument '4'; flags start with --\n"),
    (
        ["--metrics", "balanced", "macro_f1", "worst_class", "--rounds=3"],
        "unexpected argument 'macro_f1'; write --metrics=balanced,macro_f1,worst_class\n",
    ),
    (["rounds=2"], "unexpected argument 'rounds=2'; flags start with --; did you mean --rounds=2?"),
    (["--flagfile=/no/such/file"], "/no/such/file"),
    # Versions of Python have different words for the reason.
    (["--flagfile=a\0b"], "--flagfile=a\\x00b: cannot be read: "),
    (["--" + "x" * 10_000], "a flag is unknown, and its name is too long to be shown"),
    # control characters and long values
    (["--algorithm=a\x1b[2J\nb"], "--algorithm=a\\x1b[2J\\nb: choose one of"),
    (["--algorithm=" + "y" * 10_000], "--algorithm=" + "y" * 250),
    # modules that are not there
    (["--import=no_such_module"], "--import=no_such_module: No module named 'no_such_module'"),
    (["--import=json", "--import=my module"], "--import=my module: must be the name of a module"),
    (["--import="], "--import: must be the name of a module"),
]

OTHERS = [
    ("train", ["--nooutput_dir"], "output_dir"),
    ("compare", ["--algorithms=fedavg,fedsgd"], "fedavg,fedsgd: there is no fedsgd; choose one"),
    (
        "compare",
        ["--algorithms=feddc,fedavg,fednova,fedetf", "--client_optimizer=adam"],
        "--client_optimizer=adam: cannot be used with feddc, fednova, fedetf (feddc is defined for",
    ),
    (
        "compare",
        [
            "--algorithms=fednova,fedavg,feddyn,creff",
            "--client_optimizer=adam",
            "--server_optimizer=fedadam",
        ],
        "--client_optimizer=adam: cannot be used with fednova (fednova is defined for the steps of "
        "SGD; choose --client_optimizer=sgd or another method); --server_optimizer=fedadam cannot "
        "be used with feddyn, creff (feddyn has a server step of its own; choose",
    ),
    (
        "compare",
        ["--algorithms", "fedavg", "fedgela", "--seeds", "0", "1"],
        "unexpected argument 'fedgela'; write --algorithms=fedavg,fedgela\n",
    ),
    (
        "compare",
        ["--algorithms=fedavg,", "fedgela"],
        "unexpected argument 'fedgela'; write --algorithms=fedavg,fedgela\n",
    ),
    ("compare", ["--seeds=0,0"], "--seeds=0,0: name each seed once\n"),
    (
        "compare",
        ["--algorithms=fedavg,fedmr,fedavg"],
        "--algorithms=fedavg,fedmr,fedavg: name each method once\n",
    ),
    (
        "compare",
        [
            "--algorithms=fedavg,fedyoyo",
            "--dataset=shakespeare",
            "--partition=natural",
            "--data_dir=x",
        ],
        "--algorithms=fedyoyo: augments images, and inputs are of kind text",
    ),
    ("compare", ["--seeds=0,x"], "--seeds=0,x: must be integers from 0"),
    ("compare", ["--seeds=-1"], "--seeds=-1: must be integers from 0"),
    ("compare", ["--seeds="], "--seeds: is required"),
    (
        "compare",
        ["--algorithms=all,local"],
        "--algorithms=all,local: all stands alone; --baselines adds those that are not federated\n",
    ),
    ("compare", ["--algorithms="], "--algorithms: is required"),
    (
        "compare",
        ["--seed=1"],
        "--seed: there is no such flag; it is a flag of tasks.train, tasks.partition; did you mean "
        "--seeds",
    ),
    (
        "compare",
        ["--rungs=0.5"],
        "--rungs: there is no such flag; it is a flag of tasks.sweep; did you mean --rounds?",
    ),
    ("export", ["--noreport"], "--noreport: there is no such flag; it is a flag of tasks.train, "),
    ("compare", ["--method=fedavg"], "--method: there is no such flag; did you mean --algorithms?"),
    (
        "compare",
        ["--criterion=va"],
        "--criterion: there is no such flag; it is a flag of tasks.sweep",
    ),
    (
        "partition",
        ["--overwrite"],
        "--overwrite: there is no such flag; it is a flag of tasks.train, tasks.compare, "
        "tasks.sweep, tasks.export",
    ),
    ("evaluate", ["--dir=x"], "--dir: there is no such flag; did you mean --run_dir?"),
    (
        "compare",
        ["--algorithms=fedavg", "--fedgela_scale=2"],
        "--fedgela_scale=2.0: applies to fedgela, and the method is fedavg",
    ),
    ("compare", ["--target_accuracy=0.33"], "--target_accuracy=0.33: must be at least 1"),
    ("compare", ["--target_accuracy=101"], "--target_accuracy=101.0: must be at most 100"),
    ("compare", ["--partitions=blocks"], "--partitions=blocks: must be one of class:CLASSES"),
    ("compare", ["--partitions=class"], "--partitions=class: must be one of class:CLASSES"),
    ("compare", ["--partitions=iid:3"], "--partitions=iid:3: must be one of class:CLASSES"),
    ("compare", ["--partitions=class:x"], "--partitions=class:x: must be one of class:CLASSES"),
    ("compare", ["--partitions=iid@"], "--partitions=iid@: must be one of class:CLASSES"),
    ("compare", ["--partitions="], "--partitions: is required"),
    ("compare", ["--partitions=class:11"], "--classes_per_client=11: digits has only 10 classes"),
    (
        "compare",
        ["--partitions=dirichlet:0.1,dirichlet:.1"],
        "--partitions=dirichlet:0.1,dirichlet:.1: name each partition once",
    ),
    ("compare", ["--partitions=iid,iid@10"], "--partitions: name each partition once"),
    (
        "compare",
        ["--partitions=iid", "--partition=class"],
        "--partition=class: cannot be combined with --partitions",
    ),
    (
        "compare",
        ["--partitions=iid,class:2", "--min_samples=2"],
        "--min_samples=2: applies only with --partition=dirichlet|quantity",
    ),
    ("sweep", [], "--grid: is required, or --algorithms to tune several methods\n"),
    ("export", ["--out=x"], "--out: there is no such flag; did you mean --export_dir?"),
    ("sweep", ["--grid=learning_rate=1"], "--grid=learning_rate=1: must be a flag of tasks.train"),
    ("sweep", ["--grid=rounds"], "--grid=rounds: must be a flag of tasks.train"),
    ("sweep", ["--grid=seed=0,1"], "--grid=seed=0,1: must be a flag of tasks.train"),
    (
        "sweep",
        ["--grid=fedgela_scale=1"],
        "--grid=fedgela_scale=1: must be a flag of tasks.train that may differ between",
    ),
    ("sweep", ["--grid=rounds=2,x"], "--grid=rounds=2,x: "),
    # The folder would be beside the directory of the sweep.
    (
        "sweep",
        ["--grid=warm_start=../a,../b"],
        "--grid=warm_start=../a,../b: paths cannot be varied",
    ),
    ("sweep", ["--grid=nonfinite=stop,../b"], "--grid=nonfinite=stop,../b: paths cannot be varied"),
    ("sweep", ["--grid=rounds=2,2"], "--grid=rounds=2,2: name each value once"),
    ("sweep", ["--grid=rounds=2", "--rounds=3"], "--grid=rounds=2: rounds is given twice"),
    ("sweep", ["--grid=rounds=2", "--seeds=x"], "--seeds=x: must be integers from 0"),
    ("sweep", ["--grid=rounds=0"], "--rounds=0: must be at least 1"),
    ("sweep", ["--grid=rounds=2,3"], "--validation_fraction=0: a sweep chooses on held-out"),
    ("sweep", ["--grid=rounds=2", "--final_seeds=1,2"], "--final_seeds=1,2: applies only with"),
    ("sweep", ["--grid=rounds=2", "--baselines"], "--baselines=True: applies only with"),
    (
        "sweep",
        ["--grid=rounds=2", "--target_accuracy=50"],
        "--target_accuracy=50.0: applies only with --algorithms",
    ),
    (
        "sweep",
        ["--grid=rounds=2", "--halving=all"],
        "--halving=all: applies only with --algorithms",
    ),
    (
        "sweep",
        ["--algorithms=fedavg", "--halving=rates"],
        "--halving=rates: choose one of same_rate, ",
    ),
    ("sweep", ["--grid=rounds=2", "--reduction=3"], "--reduction=3.0: applies only with --algo"),
    ("sweep", ["--algorithms=fedavg,sgd"], "--algorithms=fedavg,sgd: there is no sgd"),
    (
        "sweep",
        ["--algorithms=fedavg", "--algorithm=fedgela"],
        "--algorithm=fedgela: cannot be combined with --algorithms",
    ),
    ("sweep", ["--algorithms=fedavg"], "--validation_fraction=0: a sweep chooses on held-out"),
    (
        "sweep",
        [
            "--algorithms=feddyn,fedavg,feddc",
            "--validation_fraction=0.2",
            "--server_learning_rate=0.5",
        ],
        "--server_learning_rate=0.5: cannot be used with feddyn, feddc (feddyn has a server step",
    ),
    ("sweep", ["--algorithms=fedavg", "--grid=rounds=2,3"], "--grid=rounds=2,3: must be a flag"),
    ("sweep", ["--grid=new_client_names=1,2"], "--grid=new_client_names=1,2: must be a flag"),
    (
        "sweep",
        ["--algorithms=fedavg", "--grid=fedprox_mu=1"],
        "--grid=fedprox_mu=1: must be a flag of tasks.train that may differ between runs of fedavg",
    ),
    (
        "sweep",
        ["--algorithms=fedavg", "--grid=client_learning_rates=1"],
        "such as --grid=client_learning_rate=0.01,0.05; did you mean --grid=client_learning_rate?",
    ),
    (
        "sweep",
        ["--algorithms=fedavg,fedprox", "--fedprox_mu=1"],
        "--fedprox_mu=1.0: is varied; name the values to try with --grid=fedprox_mu=…",
    ),
    (
        "sweep",
        ["--algorithms=fedavg", "--client_learning_rate=1"],
        "--client_learning_rate=1.0: is varied; name the values",
    ),
    ("sweep", ["--algorithms=fedavg", "--rungs=half"], "--rungs=half: must be numbers between"),
    ("sweep", ["--algorithms=fedavg", "--rungs=0.5,0.2"], "--rungs=0.5,0.2: must be ascending"),
    ("sweep", ["--algorithms=fedavg", "--reduction=1"], "--reduction=1.0: must be a number"),
    (
        "sweep",
        ["--algorithms=fedavg", "--final_seeds=1,0", "--validation_fraction=0.2"],
        "--final_seeds=1,0: settings are chosen with seed 0; name other seeds",
    ),
    (
        "sweep",
        ["--algorithms=fedavg,fedavg", "--validation_fraction=0.2"],
        "--algorithms=fedavg,fedavg: name each method once",
    ),
    ("report", ["--run_dir=x"], "applies only with --comparison_dirs"),
    ("report", ["--comparison_dirs=x,y"], "--comparison_dirs=x: is not a directory"),
    (
        "report",
        ["--publish_dir=x"],
        "--publish_dir: there is no such flag; `python -m publication`, in a clone, makes",
    ),
    (
        "report",
        ["--comparison_dirs=x", "--run_dir=y"],
        "--run_dir=y: cannot be combined with --comparison_dirs",
    ),
    ("train", ["--validation_fraction=1"], "--validation_fraction=1.0: must be at most 0.9"),
    ("partition", ["--rounds=2"], "rounds"),
    (
        "partition",
        ["--partition=dirichlet", "--num_clients=300"],
        "--num_clients=300: with --min_samples=10, 3000 training samples are needed",
    ),
    (
        "partition",
        ["--partition=iid", "--num_clients=2000"],
        "--num_clients=2000: 1438 training samples are enough for at most 1438 clients",
    ),
]


def check(result, program, message):
    """Checks for one line; a message that starts with a flag has to start the line too."""
    status, out, err = result
    assert status == 2, err
    assert out == ""
    err = without_stages(err)
    assert message in err
    if message.startswith("--"):
        assert re.match(rf"{program}: error: (flag )?{re.escape(message)}", err), err
    assert err.startswith(f"{program}: error: ")
    assert err.count("\n") == 1, err
    assert "Traceback" not in err


@pytest.mark.parametrize(("flags", "message"), TRAIN, ids=lambda value: str(value)[:40])
def test_train(flags, message, call_here, tmp_path):
    check(call_here("train", *flags, f"--output_dir={tmp_path / 'run'}"), "train", message)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("program", "flags", "message"), OTHERS, ids=str)
def test_others(program, flags, message, call_here, tmp_path):
    check(call_here(program, *flags, f"--output_dir={tmp_path / 'out'}"), program, message)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        # By their settings, before what their clients send is looked at.
        ("fedavg,ccvr,creff,fedproto", "cannot be used with ccvr, creff (ccvr has a server step"),
        ("fedavg,fedproto,ccvr", "ccvr has a server step"),
        ("fedavg,fedproto", "clients of fedproto send no weights"),
    ],
)
def test_methods_that_are_refused_for_the_same_reason_are_named_together(
    methods, message, call_here, tmp_path
):
    flags = ("--dry_run", f"--algorithms={methods}", "--server_optimizer=fedadam")
    result = call_here("compare", *flags, f"--output_dir={tmp_path / 'out'}")
    check(result, "compare", f"--server_optimizer=fedadam: {message}")


def test_a_long_list_of_names_is_cut_between_names(call_here, tmp_path):
    flags = ("--algorithms=fedgla,fedrodd,fedavq", f"--output_dir={tmp_path / 'out'}")
    _, _, err = call_here("compare", *flags)
    assert len(err) < 540
    assert err.endswith("; did you mean fedgela or fedala, fedrod, fedavg?\n")
    start, end = err.partition("choose one of ")[2].partition("; did")[0].split(" … ")
    assert {*start.split(", "), *end.split(", ")} < {*methods.names()}


@pytest.mark.parametrize(
    ("program", "flags", "message"),
    [
        ("train", ["--rounds"], "--rounds: is given without a value\n"),
        (
            "report",
            [],
            "give one of --run_dir, --comparison_dir, --sweep_dir and --comparison_dirs\n",
        ),
    ],
)
def test_what_is_missing_is_named(program, flags, message, call_here):
    check(call_here(program, *flags), program, message)


@pytest.mark.parametrize("program", ["train", "compare", "partition"])
def test_output_dir_is_required(program, call_here):
    check(call_here(program), program, "--output_dir: is required")
    check(call_here(program, "--output_dir="), program, "--output_dir: is required")


@pytest.mark.parametrize(
    ("program", "flags", "message"),
    [
        ("train", ["--num_clients=3"], "--num_clients=3: too few for all 10 classes"),
        ("train", ["--report_every=-1"], "--report_every=-1: must be at least 0"),
        (
            "compare",
            ["--algorithms=fedavg,fedsgd"],
            "--algorithms=fedavg,fedsgd: there is no fedsgd; choose one of ",
        ),
        (
            "compare",
            ["--algorithms=fedavg,fedgla,fedbm"],
            "--algorithms=fedavg,fedgla,fedbm: there is no fedgla, fedbm; choose one of ",
        ),
    ],
    ids=str,
)
def test_a_dry_run_refuses_what_a_run_would(program, flags, message, call_here, tmp_path):
    result = call_here(program, "--dry_run", *flags, f"--output_dir={tmp_path / 'out'}")
    check(result, program, message)
    assert not list(tmp_path.iterdir())
    check(call_here(program, "--dry_run"), program, "--output_dir: is required")


@pytest.mark.integration
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--rounds=three"], "--rounds=three: "),  # cannot be parsed
        (["--lr=0.1"], "--lr: there is no such flag; did you mean --client_learning_rate?"),
        (["--max_train_samples=9"], "--max_train_samples=9: must be at least"),  # a bad setting
        (["--import=no_such_module"], "--import=no_such_module: No module named"),
    ],
    ids=["flag", "name", "setting", "module"],
)
def test_in_a_process_of_its_own(flags, message, call, tmp_path):
    check(call("train", *flags, f"--output_dir={tmp_path / 'run'}"), "train", message)
    assert not list(tmp_path.iterdir())


@pytest.mark.integration
def test_programs_of_the_console_script_have_their_own_names_in_messages():
    code = "import sys; sys.argv[0] = '/bin/tff-pcdd'; from tff_pcdd.cli import front_door; "
    command = [sys.executable, "-c", code + "front_door.run()", "train", "--rounds=0"]
    result = subprocess.run(command, capture_output=True, text=True)
    message = "--rounds=0: must be at least 1"
    check((result.returncode, result.stdout, result.stderr), "train", message)


@pytest.mark.integration
def test_train_refuses_before_tensorflow_is_imported(call, tmp_path):
    flags = ("--clients_per_round=11", f"--output_dir={tmp_path / 'run'}")
    status, _, err = call("train", *flags, python=("-X", "importtime"))
    assert status == 2
    imported = {line.rsplit("|", 1)[-1].strip() for line in err.splitlines()}
    assert not {m for m in imported if m.split(".")[0] == "tensorflow"}


@pytest.mark.parametrize("program", ["train", "compare", "partition"])
def test_places_that_cannot_take_results(program, call_here, tmp_path):
    """A directory of others, a file, and a path below a file."""
    (tmp_path / "thesis.tex").write_text("years of work")
    for path, message in (
        (tmp_path, "is not empty and holds no "),
        (tmp_path / "thesis.tex", "thesis.tex is a file"),
        (tmp_path / "thesis.tex" / "run", "thesis.tex is a file"),
    ):
        result = call_here(program, f"--output_dir={path}")
        check(result, program, f"--output_dir={path}: ")
        check(result, program, message)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_flags_of_other_methods_may_stand_in_flagfiles_only(call_here, tmp_path):
    """So that a file serves any choice among its methods; a mistyped command is still refused."""
    flagfile = tmp_path / "table.flags"
    flagfile.write_text("--algorithms=fedavg,fedgela\n--fedgela_scale=3\n--fedgela_masked\n")
    flags = ("--dry_run", f"--flagfile={flagfile}", f"--output_dir={tmp_path / 'out'}")
    status, out, err = call_here("compare", *flags, "--algorithms=fedavg")
    assert status == 0, err
    assert [line.split(":")[0] for line in out.splitlines()] == ["fedavg seed 0"]
    for typed in ("--fedgela_scale=4", "--nofedgela_masked"):
        result = call_here("compare", *flags, "--algorithms=fedavg", typed)
        check(result, "compare", "applies to fedgela, and the method is fedavg")
    assert [path.name for path in tmp_path.iterdir()] == ["table.flags"]


def test_what_flagfiles_say_of_replaced_components_does_not_count(call_here, tmp_path):
    flagfile = tmp_path / "table.flags"
    lines = ("client_momentum=0.5", "dataset=cifar10", "data_dir=/no/such")
    flagfile.write_text("".join(f"--{line}\n" for line in (*lines, "runtime=tff", "insecure")))
    given = ("--dry_run", f"--flagfile={flagfile}", f"--output_dir={tmp_path / 'out'}")
    replaced = ("--client_optimizer=adam", "--dataset=digits", "--runtime=inprocess")
    status, _, err = call_here("train", *given, *replaced, f"--trust_flagfile={flagfile}")
    assert status == 0, err
    # What belongs together is on the command line, or in the file.
    check(
        call_here("train", *given, *replaced, "--client_momentum=0.5"),
        "train",
        "--client_momentum=0.5: applies only with --client_optimizer=sgd",
    )
    flagfile.write_text("--client_optimizer=adam\n--client_momentum=0.5\n")
    check(
        call_here("train", *given), "train", "--client_momentum=0.5: applies only with --client_opt"
    )


def test_modules_that_trusted_flagfiles_name_are_imported(call_here, tmp_path):
    flagfile = tmp_path / "mine.flags"
    flagfile.write_text("--import=no_such_module\n")
    flags = (f"--flagfile={flagfile}", f"--output_dir={tmp_path / 'out'}")
    message = f"--flagfile={flagfile}: names --import=no_such_module, which is not followed"
    check(call_here("train", *flags), "train", message)
    result = call_here("train", *flags, f"--trust_flagfile={flagfile}")
    check(result, "train", "--import=no_such_module: No module named 'no_such_module'")


def test_flagfiles_of_unknown_origin_hold_plain_settings_only(call_here, tmp_path):
    flagfile = tmp_path / "best.flags"
    flagfile.write_text("--rounds=2\n--overwrite\n")
    flags = (f"--flagfile={flagfile}", f"--output_dir={tmp_path / 'out'}")
    message = f"--flagfile={flagfile}: names --overwrite=, which is not followed"
    check(call_here("train", *flags), "train", message)
    flagfile.write_text("--rounds=2\n")
    assert call_here("train", *flags, "--dry_run")[0] == 0


def test_errors_of_the_system_name_the_path(call_here, tmp_path):
    path = tmp_path / ("x" * 300)
    status, out, err = call_here("train", f"--output_dir={path}")
    assert (status, out) == (1, "")
    assert err.startswith("train: error: /")
    assert err.endswith(": File name too long\n")


def test_train_in_a_directory_where_a_run_goes_on(call_here, tmp_path):
    with directories.locked(tmp_path / "run"):
        result = call_here("train", f"--output_dir={tmp_path / 'run'}")
    check(result, "train", f"--output_dir={tmp_path / 'run'}: another process is writing")
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]


@pytest.mark.integration
def test_train_with_a_device_that_is_not_there(call, tmp_path):
    flags = ("--runtime=inprocess", "--devices=GPU:7", f"--output_dir={tmp_path / 'run'}")
    check(call("train", *flags), "train", "--devices=GPU:7: ")
    assert not list(tmp_path.iterdir())


def test_evaluate(call_here, tmp_path):
    check(call_here("evaluate"), "evaluate", "--run_dir: is required")
    directory = tmp_path / "run"
    result = call_here("evaluate", f"--run_dir={directory}")
    check(result, "evaluate", f"--run_dir={directory}: holds no run")
    assert not directory.exists()
    directory.mkdir()
    (directory / "config.json").write_text('{"algorithm": "fedavg", ')
    result = call_here("evaluate", f"--run_dir={directory}")
    check(result, "evaluate", f"--run_dir={directory}: config.json is damaged")


@pytest.mark.parametrize(
    "flag", ["checkpoint_every=2", "keep_checkpoints=2", "tracking=mlflow", "callbacks=mine"]
)
def test_an_evaluation_has_no_flags_of_training(flag, call_here, tmp_path):
    result = call_here("evaluate", f"--run_dir={tmp_path}", f"--{flag}")
    check(result, "evaluate", f"--{flag.partition('=')[0]}: there is no such flag")


def test_only_a_calibration_writes_beside_the_run(call_here, tmp_path):
    run_directory.write_config(tmp_path, ExperimentConfig(), {})
    shown = {"--report": "--report=True"}
    for flag in ("--output_dir=out", "--report", "--ccvr_epochs=3"):
        result = call_here("evaluate", f"--run_dir={tmp_path}", flag)
        check(result, "evaluate", f"{shown.get(flag, flag)}: applies only with --head_calibration")


@pytest.mark.parametrize("flag", ["--noreport", "--report=false", "--report=0"])
def test_an_evaluation_without_a_report_is_one(flag, call_here, tmp_path, monkeypatch):
    run_directory.write_config(tmp_path, ExperimentConfig(), {})
    asked = []

    def evaluate(*arguments):
        asked.append(arguments)
        return {"accuracies": {}, "round": 3}

    monkeypatch.setattr(training, "evaluate_run", evaluate)
    status, out, _ = call_here("evaluate", f"--run_dir={tmp_path}", flag)
    assert (status, out.partition(";")[0]) == (0, "after round 3")
    assert len(asked) == 1


@pytest.mark.parametrize("flag", ["skip_broken_images", "insecure", "fedrs_graded", "join_names"])
def test_a_switch_of_another_component_that_is_off_is_not_refused(flag, call_here):
    common = ("--output_dir=/tmp/not_there", "--dry_run")
    for given in (f"--no{flag}", f"--{flag}=false"):
        assert call_here("train", *common, given)[0] == 0
    check(call_here("train", *common, f"--{flag}"), "train", f"--{flag}=True: applies ")


def test_it_writes_there_also_from_within_the_run(call_here, tmp_path, monkeypatch):
    config = ExperimentConfig.from_settings(algorithm="fedprox")
    for name in ("run", "run/plots", "run_ccvr"):
        (tmp_path / name).mkdir()
    run_directory.write_config(tmp_path / "run", config, {})
    for folder, run_dir in (("run", "."), ("run/plots", "../"), ("", "run/.")):
        monkeypatch.chdir(tmp_path / folder)
        result = call_here("evaluate", f"--run_dir={run_dir}", "--head_calibration=ccvr")
        check(result, "evaluate", f"--output_dir={tmp_path / 'run_ccvr'}: exists already")


def test_a_run_that_was_trained_with_a_head_calibration_keeps_it(call_here, tmp_path):
    config = ExperimentConfig.from_settings(algorithm="fedprox", head_calibration="ccvr")
    run_directory.write_config(tmp_path, config, {})
    for name in ("none", "fednpc"):
        result = call_here("evaluate", f"--run_dir={tmp_path}", f"--head_calibration={name}")
        reason = "the run was trained with --head_calibration=ccvr"
        check(result, "evaluate", f"--head_calibration={name}: {reason}")
