"""What the columns of a comparison mean: the texts of comparison.md."""

ACCURACY = """\
GA: accuracy of the global model on the whole test set, after the last round and averaged over the
second half of the rounds. A method marked † has no global model; its GA is the mean over clients of
each personal model's accuracy on the whole test set. PA: mean over clients of the personal model's
accuracy on the client's own test part, before any local step, and after local training for the
number of epochs under "PA epochs" (for methods without other personal models, fine-tuning of the
global model). For "own classes", every method may only choose among the classes that the client
trains on. A method with 0 PA epochs is not tuned, so its two PA are equal. VA: accuracy of the
global model on the samples that all clients held out from training; the best round is chosen by
it. Accuracies in %, mean ± standard deviation over seeds; the best of a column is bold, the second
best underlined. Nothing was chosen on test data."""

HEADS_TITLE = "### Heads and groups of classes"
HEADS = """\
Many, medium and few: classes in the order of their training samples (in the whole federation for
GA, at the client for PA), up to 75 % of all samples, up to 95 %, and the rest. A further head of a
method, such as "fedloge: ssec", is evaluated on the same features in the same round; metrics.csv
has it as ga_ssec."""

ROUNDS_TITLE = "### Rounds to FedAvg's best GA"
ROUNDS = """\
Rounds to …: the first evaluated round in which GA, averaged over seeds, reaches the best value of
FedAvg's average in any round; speed-up: FedAvg's rounds to that value divided by these. The target
is chosen on test data; use this column only to compare learning speed."""

COST = """\
Parameters kept: how many numbers a client keeps between rounds. kB up, kB down: what a client sends
and receives in a round, in 1,000 bytes, averaged over the rounds it takes part in. s/round: median
time of a round without the first; runs were computed one after the other on the same machine."""

FAIRNESS = """\
With the same seed, all methods have the same clients, cohorts, batches in the same order and
augmentation; parts of their networks with the same name and shape start with the same weights."""
