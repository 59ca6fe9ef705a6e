"""The explanations in comparison.md of what its columns mean."""

ACCURACY = """\
GA: accuracy of the global model on the whole test set, after the last round and averaged over the
second half of the rounds. A method marked † has no global model; its GA is the mean over clients of
each personal model's accuracy on the whole test set. PA: mean over clients of the personal model's
accuracy on the client's own test part, before any local step, and after local training for the
number of epochs in column "PA epochs" (methods without personal models of their own fine-tune the
global model). Own classes: the prediction is restricted to the classes that the client trains on,
for every method. With 0 PA epochs there is no local training, so both PA are equal. VA: as GA,
on the samples that all clients held out from training: the accuracy of the global model, or for a
method marked †, the mean over clients of each personal model's accuracy on all of them; the best
round is the one with the highest VA. Accuracies in %, mean ± sample standard deviation over seeds
(n - 1 in the denominator; with one seed there is none). The best value of a column is bold, the
second best underlined; equal values and baselines are not marked. Nothing was chosen on test
data."""

OVER_LOCAL = """\
PA over local: by how much PA after exceeds that of the method local, in percentage points; the mean
over seeds of the differences between runs with the same seed."""

BASELINES = """\
The following methods are not federated. In local, every client trains alone; in central, one model
is trained on the samples of all clients. Both train for as many epochs as the other methods.
Here:"""

METRICS = """\
A column with the name of a metric, such as "balanced, GA", shows that metric instead of the
accuracy, for the same models and samples, after the last round."""

DIVERGED = """\
‡: runs of this method diverged. Weights, losses or answers were NaN, infinite or far too large
until the run was stopped or ended. They are left out of all values, which are means over the other
seeds."""

DIFFERENT_DATA = """\
The following runs, separated by "/", cannot be compared, because the data have changed between
them; run those before the change again, with overwrite or in another directory:"""

EXCLUDED = """\
In some rounds of the following runs, clients were excluded from the mean, because what they
computed was NaN or infinite; in parentheses, how often:"""

HEADS_TITLE = "### Heads and groups of classes"
HEADS = """\
Many, medium and few: classes sorted by their number of training samples (in the whole federation
for GA, at the client for PA); the largest classes that hold 75 % of all samples, the next ones up
to 95 %, and the rest. A further head of a method, such as "fedloge: ssec", is evaluated on the same
features in the same round; its column in metrics.csv is ga_ssec."""

ROUNDS_TITLE = "### Rounds to FedAvg's best GA"
ROUNDS = """\
Rounds to …: the first evaluated round in which GA, averaged over seeds, reaches the highest average
GA of FedAvg. Speed-up: FedAvg's number of rounds divided by the method's. The target is chosen on
test data; use these columns only to compare learning speed."""

COST = """\
Parameters kept: how many numbers a client stores between rounds. kB up, kB down: what a client
sends and receives per round, in units of 1,000 bytes, averaged over the rounds it takes part in.
s/round: median time of a round in seconds, without the first round; compare it only between runs
that were computed one after the other on the same machine."""

FAIRNESS = """\
With the same seed, all methods use the same clients, cohorts and augmentation, and the same batches
in the same order. Parts of their networks with the same name and shape start from the same
weights."""
