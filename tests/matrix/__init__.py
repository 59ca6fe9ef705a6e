"""Every combination of method, aggregator, normalization, precision, participation, client, export.

    python -m tests.matrix

prints how many combinations there are, how many of them are refused, and how many methods are
trained with each setting of training. The axes come from the registries, so a new method or
aggregator is combined with everything by being registered; see `combinations`. Step-size schedules,
optimizers, unequal local work and cohort sampling do not multiply the number of combinations: those
that share their traced computations also share one choice of these settings; see `profiles`.

A combination is either refused at the start, or it is trained for three rounds. Then all numbers
must be finite; a third round from a saved and restored state must equal the one that follows
directly; the exported model must answer in a fresh process as the model in memory does, and as
often correctly as the evaluation counted; and the aggregator, with its effect switched off, must
give the mean of what the clients computed; see `bench`.
"""
