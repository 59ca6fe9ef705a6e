"""What methods send and refuse, written down for all tests that need to know."""

# Their formulas contain the step size of SGD.
ASSUMES_SGD = {
    *("feddc", "feddc_prototypes", "fedetf", "fednova", "fednova_prototypes", "scaffold")
}
# They have a server step of their own.
OWN_SERVER_STEP = {"ccvr", "creff", "feddc", "feddc_prototypes", "feddyn", "feddyn_prototypes"}
# Their clients send no weights.
SENDS_NO_WEIGHTS = ["fedproto", "local"]
# The server cannot re-train their heads, and why.
FIXED_HEADS = {
    **dict.fromkeys(("fedpac", "fedper", "fedproto", "fedrep", "local"), "has no global model"),
    **dict.fromkeys(("fedbabu", "fedetf", "fedge", "fedgela"), "has a fixed head"),
}
# Methods whose clients send sums besides their weights, and what they send.
SENDS = {
    "ccvr": "counts, features, products",
    "creff": "gradients, holders",
    "feddc": "control, weight",
    "feddc_prototypes": "control, counts, features, weight",
    "feddyn": "weight",
    "feddyn_prototypes": "counts, features, weight",
    "fedgen": "biases, counts, kernels",
    "fedmr": "counts, features",
    "fedyoyo": "numbers",
    "fednova": "steps, weight",
    "fednova_prototypes": "counts, features, steps, weight",
    "fedpac": "biases, counts, features, kernels, statistics, trained, variances",
    "fedproc": "counts, features",
    "fedprox_prototypes": "counts, features",
    "moon_prototypes": "counts, features",
    "ratioloss": "clients, samples",
    "scaffold": "control",
}
