"""Where the federated computations run.

Three runtimes execute the same TFF computations: `inprocess` (TensorFlow in this Python process, on
CPU or GPU), `tff` (the C++ worker that ships with TFF, on this machine) and `ray` (Ray actors, on
this machine or others). `use` makes one of them TFF's default:

    from tff_pcdd import runtime

    runtime.use("tff")                      # until the next `use`, or the end of the process
    with runtime.use("inprocess"):          # for a block
        ...

A program that must not change the default makes a context of its own and installs it around its
calls:

    context = runtime.create("inprocess", client_parallelism=2).create_context()
    with runtime.installed(context):
        ...
    context.close()

To add a runtime, register a subclass of `RuntimeConfig`.

The names and settings of runtimes are part of the command line, so importing this package is cheap:
TFF and Ray, which take seconds to import, are loaded when a runtime starts.
"""

from tff_pcdd.errors import ActorsLostError, RuntimeStartError, WorkerDiedError
from tff_pcdd.runtime.config import RuntimeConfig, registry
from tff_pcdd.runtime.contexts import Runtime, installed, use

register = registry.register
names = registry.names
get = registry.get
create = registry.create

__all__ = [
    "ActorsLostError",
    "Runtime",
    "RuntimeConfig",
    "RuntimeStartError",
    "WorkerDiedError",
    "create",
    "get",
    "installed",
    "names",
    "register",
    "registry",
    "use",
]
