"""Methods that refuse settings of training, written down for all tests that need to know."""

# Their formulas contain the step size of SGD.
ASSUMES_SGD = {
    *("feddc", "feddc_prototypes", "fedetf", "fednova", "fednova_prototypes", "scaffold")
}
# They have a server step of their own.
OWN_SERVER_STEP = {"ccvr", "creff", "feddc", "feddc_prototypes", "feddyn", "feddyn_prototypes"}
# Their clients send no weights.
SENDS_NO_WEIGHTS = ["fedproto", "local"]
