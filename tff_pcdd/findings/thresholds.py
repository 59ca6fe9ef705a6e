"""The thresholds of the rules."""

# How many standard errors above chance a model has to be, and its curve has to rise.
ERRORS = 2.0
# From this share of all predictions on, a model gives the same answer.
ONE_ANSWER = 0.95
# Fewer test samples of a class or of a client, or of a client's difference, say nothing.
LEAST_SAMPLES, LEAST_LOST_SAMPLES = 5, 2
# Curves with fewer points are not judged. Their last fifth is compared with the fifth before.
LEAST_POINTS, WINDOW = 5, 0.2
# In percentage points: a gain of the last fifth that means that training was stopped too early; a
# difference of all points that is none; an accuracy from which a flat curve has no room to rise;
# and a distance from the best round that makes the last one unlucky.
RISE, FLAT, HIGH, DROP = 2.0, 1.0, 90.0, 5.0
# From so many points on, a curve has a slope, and may be said to fall or rise steadily.
LEAST_FALLING = 4
# In earlier rounds than this, accuracies vary while the training loss still falls.
EARLY = 20
# With fewer seeds, more of them are advised where results cannot be told apart.
FEW_SEEDS = 5
# From this share of the runs of a comparison on, what they need is advised for all of them.
SHARE_ADVISED = 1 / 3
# A training loss that falls by less than this share has hardly changed.
STILL = 0.01
# One whose later half is lower by less than this share has stopped falling.
STUCK = 0.05
# An accuracy of a group of classes that is none, in percent.
NOTHING = 0.0
