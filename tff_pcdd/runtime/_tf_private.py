"""What is not part of TensorFlow's public interface; the lock file pins the version."""

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.eager import context


def let_idle_threads_sleep() -> None:
    """Makes the threads of TensorFlow's operations wait without computing; changes no result.

    By default, they spin for a while, at the cost of other processes on the same cores. Has to be
    called before the first operation; later, it has no effect.
    """
    config = config_pb2.ConfigProto()
    config.experimental.disable_thread_spinning = True
    context.context()._config = config
