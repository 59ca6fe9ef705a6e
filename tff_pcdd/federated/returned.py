"""What a method's hooks return, checked when they are traced: authors of methods see this first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
import tree as nested

from tff_pcdd.federated.state import ordered
from tff_pcdd.methods.contract import Method
from tff_pcdd.methods.records import Upload


def checked_loss(result: Any, method: Method) -> tuple[tf.Tensor, Mapping[str, tf.Tensor]]:
    """The result of a loss, if it is a scalar with metrics that the method declares."""
    is_pair = isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping)
    if found := _unlike_scalar(result[0]) if is_pair else type(result).__name__:
        raise TypeError(
            f"{method.name}: its loss has to return a pair, the mean over the batch (a scalar) and "
            f"a dictionary of metrics, such as `return tf.reduce_mean(losses), {{}}`, not {found}"
        )
    for name in sorted(result[1]):
        if name not in method.metric_names:
            raise ValueError(
                f"{method.name}: its loss returns {name!r}, not in metric_names; declare "
                f"`metric_names = {(*method.metric_names, name)!r}` in the class"
            )
        if found := _unlike_scalar(result[1][name]):
            reason = f"has to be a float32 scalar, such as a mean, not {found}"
            raise TypeError(f"{method.name}: the metric {name!r} of its loss {reason}")
    return result


def check_gradients(groups: Sequence[Sequence[tf.Tensor | None]], method: Method) -> None:
    """Refuses a loss from which no variable would learn."""
    gradients = [gradient for group in groups for gradient in group]
    if gradients and not any(tf.is_tensor(gradient) for gradient in gradients):
        raise ValueError(
            f"{method.name}: its loss depends on none of the {len(gradients)} trained variables; "
            "compute it with TensorFlow from answers of `net`, without tf.stop_gradient"
        )


def _unlike_scalar(value: Any) -> str:
    """What a value is; empty if it is a float32 scalar or can be converted to one."""
    try:
        shape = tf.convert_to_tensor(value, tf.float32).shape
    except (TypeError, ValueError):
        is_tensor = tf.is_tensor(value)
        return f"a tensor of type {value.dtype.name}" if is_tensor else type(value).__name__
    # A rank may be unknown before the graph runs.
    return f"a tensor of shape {shape}" if shape.rank else ""


def checked_upload(result: Any, method: Method, state: Mapping[str, Any]) -> Upload:
    """The result of `Method.upload`, if it has the client's own tensors, as in `state`."""
    is_upload = isinstance(result, Upload)
    parts = result[:2] if is_upload else (result,)
    if not is_upload or not all(isinstance(part, Mapping) for part in parts):
        found = " and ".join(type(part).__name__ for part in parts)
        reason = f"has to return methods.Upload(sums, state) of two dictionaries, not {found}"
        raise TypeError(f"{method.name}: upload {reason}")
    for path, value in nested.flatten_with_path(ordered(result.sums)):
        if value is None or _tensor(value).dtype in (tf.bool, tf.string):
            found = "None" if value is None else _text(_tensor(value))
            reason = f"can only send sums of numbers; {'/'.join(map(str, path))!r} is {found}"
            raise TypeError(f"{method.name}: upload {reason}")
    what = "the state that upload returns must be like that of client_state"
    _check_tensors(f"{method.name}: {what}", result.state, state)
    return result


def checked_weight(result: Any, method: Method) -> tf.Tensor:
    """The result of `Method.weight`, if it is a scalar."""
    tensor = tf.cast(result, tf.float32)
    if tensor.shape.rank:
        reason = f"has to return a scalar, not a tensor of shape {tensor.shape}"
        raise TypeError(f"{method.name}: weight {reason}")
    return tensor


def checked_update(
    result: Sequence[tf.Tensor], method: Method, anchor: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """The result of `Method.update`, if it is like the shared trainable variables."""
    what = "the tensors that update returns must be like the shared trainable variables"
    _check_tensors(f"{method.name}: {what}", list(result), list(anchor))
    return list(result)


def checked_logits(result: tf.Tensor, method: Method, hook: str, num_classes: int) -> tf.Tensor:
    """Logits that a hook returns, if they have a column for each class."""
    if not result.shape.is_compatible_with([None, num_classes]):
        reason = f"has to return logits of shape (batch, {num_classes}), not {result.shape}"
        raise ValueError(f"{method.name}: {hook} {reason}")
    return result


def checked_change(result: Any, method: Method, change: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
    """The result of `Method.server_change`, if it is like the clients' mean change."""
    if not isinstance(result, Sequence):
        reason = "has to return a list of tensors like those of `change`"
        raise TypeError(f"{method.name}: server_change {reason}, not {type(result).__name__}")
    what = "the tensors that server_change returns must be like those of `change`"
    _check_tensors(f"{method.name}: {what}", list(result), list(change))
    return result


def checked_step(
    result: Any, method: Method, weights: Sequence[tf.Tensor], server: Mapping[str, Any]
) -> tuple[list[tf.Tensor], dict[str, Any]]:
    """The result of `Method.server_update`, if it is like the weights and the server's tensors."""
    is_pair = isinstance(result, (list, tuple)) and len(result) == 2
    kinds = [type(part) for part in result] if is_pair else [type(result)]
    if not is_pair or not issubclass(kinds[0], (list, tuple)) or not issubclass(kinds[1], Mapping):
        found = " and ".join(kind.__name__ for kind in kinds)
        raise TypeError(
            f"{method.name}: server_update has to return a pair, a list of the new weights and a "
            "dictionary of the server's own tensors, such as "
            f"`return new, self.next_server_state(server, sums)`, not {found}"
        )
    what = "the weights that server_update returns must be like those before the step"
    _check_tensors(f"{method.name}: {what}", list(result[0]), list(weights))
    what = "the server's tensors after its step must be like those of server_state"
    _check_tensors(f"{method.name}: {what}", result[1], server)
    return result


def _check_tensors(rule: str, found: Any, wanted: Any) -> None:
    """Names the first tensor of a nested structure that is not like that of another one."""
    here, there = _tensors(found), _tensors(wanted)
    for name in [*there, *here]:
        own, other = here.get(name), there.get(name)
        if own is None or other is None or not _alike(own, other):
            raise TypeError(f"{rule}: {name!r} is {_text(own)} here, and {_text(other)} there")


def _alike(tensor: tf.Tensor, other: tf.Tensor) -> bool:
    return tensor.dtype == other.dtype and tensor.shape.is_compatible_with(other.shape)


def _tensors(structure: Any) -> dict[str, tf.Tensor]:
    """The tensors by their places, such as `control/0`."""
    return {
        "/".join(map(str, path)): _tensor(value)
        for path, value in nested.flatten_with_path(ordered(structure))
        if value is not None
    }


def _tensor(value: Any) -> tf.Tensor:
    return value if tf.is_tensor(value) else tf.convert_to_tensor(value)


def _text(tensor: tf.Tensor | None) -> str:
    return "missing" if tensor is None else f"{tensor.dtype.name} of shape {tensor.shape}"
