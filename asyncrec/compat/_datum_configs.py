"""datum's configuration classes. Options are type-checked, and setting an unknown option raises AttributeError."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

from asyncrec.compat._tensors import found_tensorflow
from asyncrec.errors import ArgumentTypeError, ArgumentValueError

T = TypeVar("T")


class _Config(Generic[T]):
    """A descriptor for a type-checked option. Its default value is created when the option is first accessed."""

    def __init__(self, kind: Any, default: Callable[[], T]) -> None:
        self._kind = kind
        self._default = default
        self._name = ""

    def __set_name__(self, owner: type[ConfigBase], name: str) -> None:
        self._name = name

    @overload
    def __get__(self, configs: None, owner: type[ConfigBase]) -> Self: ...
    @overload
    def __get__(self, configs: ConfigBase, owner: type[ConfigBase]) -> T: ...
    def __get__(self, configs: ConfigBase | None, owner: type[ConfigBase]) -> Self | T:
        if configs is None:
            return self
        values = configs.__dict__
        if self._name not in values:
            values[self._name] = self._default()
        value: T = values[self._name]
        return value

    def __set__(self, configs: ConfigBase, value: T) -> None:
        if not isinstance(value, self._kind):
            kind = getattr(self._kind, "__name__", self._kind)
            raise ArgumentTypeError(f"{self._name} must be of type {kind}, not {type(value).__name__}: {value!r}")
        configs.__dict__[self._name] = value


def _of(value: T) -> _Config[T]:
    return _Config(type(value), lambda: value)


def _optional(kind: Any) -> _Config[Any]:
    """Return an option that is `None` until it is set."""
    return _Config(kind, lambda: None)


class ConfigBase:
    """Options that are passed as keyword arguments or set later."""

    def __init__(self, **values: Any) -> None:
        for name, value in values.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if not isinstance(getattr(type(self), name, None), _Config):
            raise AttributeError(
                f"{type(self).__name__} has no option {name!r}; its options are {', '.join(self._names())}"
            )
        super().__setattr__(name, value)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in {**vars(self), **vars(other)})

    __hash__ = None  # type: ignore[assignment]  # configurations are mutable

    def merge(self, other: Self) -> Self:
        """Return a new configuration that combines the options set in this one and in ``other``.

        Raises:
            ValueError: both configurations set the same option, but to different values.
        """
        if type(other) is not type(self):
            raise ArgumentTypeError(f"{type(self).__name__} cannot be merged with {type(other).__name__}")
        merged, defaults = type(self)(), type(self)()
        for configs in (self, other):
            for name, value in vars(configs).items():
                before, default = getattr(merged, name), getattr(defaults, name)
                if value == default:
                    continue
                if before != default and isinstance(before, ConfigBase):
                    value = before.merge(value)
                elif before not in (default, value):
                    raise ArgumentValueError(
                        f"the option {name} is {before!r} in one of the configs and {value!r} in the other"
                    )
                setattr(merged, name, value)
        return merged

    @classmethod
    def _names(cls) -> list[str]:
        return [name for each in cls.__mro__ for name, value in vars(each).items() if isinstance(value, _Config)]


def _options() -> Any:
    tensorflow = found_tensorflow()
    return None if tensorflow is None else tensorflow.data.Options()


class TFRReadConfigs(ConfigBase):
    """Options for reading files."""

    experimental_interleave_sort_fn = _optional(Callable)
    shuffle_reshuffle_each_iteration = _of(True)
    interleave_cycle_length = _of(-1)
    interleave_block_length = _of(1)
    seed = _of(6052020)
    options: _Config[Any] = _Config(object, _options)


class BucketConfigs(ConfigBase):
    """Options for batching by length. ``bucket_batch_sizes`` has one more item than ``bucket_boundaries``."""

    bucket_boundaries = _Config(list, lambda: [0])
    bucket_batch_sizes = _Config(list, lambda: [32, 32])


class DatasetConfigs(ConfigBase):
    """Options for the batches that a `Dataset` returns. Each option is described in datum's documentation."""

    buffer_size = _of(100)
    seed = _of(6052020)
    full_dataset = _of(False)
    drop_remainder = _of(True)  # in training, drop the last batch if it is not full
    drop_remainder_val = _of(False)
    drop_remainder_test = _of(False)
    deterministic = _of(False)
    deterministic_val = _of(False)
    deterministic_test = _of(False)
    num_parallel_calls = _of(1)
    batch_size_train = _of(32)
    batch_size_val = _of(32)
    batch_size_test = _of(32)
    echoing = _optional(int)
    shuffle_files = _of(True)
    reshuffle_each_iteration = _of(False)
    cache = _of(False)
    cache_filename = _of("")
    bucket_op = _Config(BucketConfigs, BucketConfigs)
    bucket_fn = _optional(Callable)
    pre_batching_callback_train = _optional(Callable)
    post_batching_callback_train = _optional(Callable)
    pre_batching_callback_val = _optional(Callable)
    post_batching_callback_val = _optional(Callable)
    pre_batching_callback_test = _optional(Callable)
    post_batching_callback_test = _optional(Callable)
    read_config = _Config(TFRReadConfigs, TFRReadConfigs)
    use_tf_padding = _of(False)
    use_datum_padding = _of(False)
