//! The names that a pickle of training data may use.

use lowtide_core::Bytes;
use lowtide_pickle::{AllowList, Call, Cycles, Limits};

use crate::tensors::Dtype;

/// Byte strings beyond this stay in the file: the data of numpy arrays.
const FAR_BYTES: u64 = 4096;

/// Functions that torch, numpy and Python call to make what they saved; none is called here.
const CALLS: [(&str, &str); 48] = [
    ("torch._utils", "_rebuild_tensor"),
    ("torch._utils", "_rebuild_tensor_v2"),
    ("torch._utils", "_rebuild_tensor_v3"),
    ("torch._utils", "_rebuild_parameter"),
    ("torch._utils", "_rebuild_parameter_with_state"),
    ("torch._utils", "_rebuild_qtensor"),
    ("torch._utils", "_rebuild_sparse_tensor"),
    ("torch._utils", "_rebuild_sparse_csr_tensor"),
    ("torch._utils", "_rebuild_nested_tensor"),
    ("torch._utils", "_rebuild_meta_tensor_no_storage"),
    ("torch._utils", "_rebuild_device_tensor_from_numpy"),
    ("torch._utils", "_rebuild_device_tensor_from_cpu_tensor"),
    ("torch._tensor", "_rebuild_from_type"),
    ("torch._tensor", "_rebuild_from_type_v2"),
    ("torch.nested._internal.nested_tensor", "_rebuild_njt"),
    ("torch.serialization", "_get_layout"),
    ("torch", "Size"),
    ("torch", "device"),
    ("collections", "OrderedDict"),
    ("collections", "defaultdict"),
    ("collections", "Counter"),
    ("collections", "deque"),
    ("builtins", "complex"),
    ("__builtin__", "complex"),
    ("builtins", "slice"),
    ("__builtin__", "slice"),
    ("builtins", "range"),
    ("__builtin__", "xrange"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy.core.numeric", "_frombuffer"),
    ("numpy._core.numeric", "_frombuffer"),
    ("datetime", "date"),
    ("datetime", "datetime"),
    ("datetime", "time"),
    ("datetime", "timedelta"),
    ("datetime", "timezone"),
    ("decimal", "Decimal"),
    ("fractions", "Fraction"),
    ("uuid", "UUID"),
    ("pathlib", "PosixPath"),
    ("pathlib", "PurePosixPath"),
    ("pathlib", "WindowsPath"),
    ("pathlib", "PureWindowsPath"),
    ("pathlib._local", "PosixPath"),
];

/// Classes that are only named, as an argument or an attribute.
const NAMES: [(&str, &str); 14] = [
    ("torch", "Tensor"),
    ("torch.nn.parameter", "Parameter"),
    ("torch.nn.parameter", "Buffer"),
    ("torch.nested._internal.nested_tensor", "NestedTensor"),
    ("torch", "per_tensor_affine"),
    ("torch", "per_channel_affine"),
    ("torch", "per_channel_affine_float_qparams"),
    ("torch.storage", "UntypedStorage"),
    ("torch.storage", "TypedStorage"),
    ("torch.storage", "_UntypedStorage"),
    ("torch", "UntypedStorage"),
    ("numpy", "ndarray"),
    ("torch_geometric.data.data", "DataEdgeAttr"),
    ("torch_geometric.data.data", "DataTensorAttr"),
];

/// Types of Python that stand in a `defaultdict` or in settings that were saved along.
const TYPES: [&str; 11] = ["int", "float", "bool", "str", "list", "tuple", "dict", "type", "long", "unicode", "object"];

/// Modules whose names no pickle of data has a reason to use, not even unused: what runs programs, reaches other
/// machines or gets at either.
const REFUSED_MODULES: [&str; 40] = [
    "__builtin__",
    "__builtins__",
    "_io",
    "_pickle",
    "_posixsubprocess",
    "_socket",
    "_thread",
    "asyncio",
    "bdb",
    "builtins",
    "code",
    "codeop",
    "commands",
    "copy_reg",
    "copyreg",
    "ctypes",
    "dill",
    "functools",
    "http",
    "importlib",
    "inspect",
    "io",
    "joblib",
    "marshal",
    "multiprocessing",
    "nt",
    "operator",
    "os",
    "pdb",
    "pickle",
    "posix",
    "pty",
    "requests",
    "runpy",
    "shutil",
    "socket",
    "subprocess",
    "sys",
    "types",
    "webbrowser",
];

/// What a pickle of training data may name.
///
/// Instances of unknown classes are let through as data: a named tuple or a dataclass is one, and its class cannot be
/// known beforehand. Calls of unknown names are refused.
pub(crate) fn allow() -> AllowList {
    let mut allow = AllowList::plain().with_unknown_classes_except(&REFUSED_MODULES);
    allow.add(&CALLS.map(|(module, name)| (module, name, Call::Object)));
    allow.add(&NAMES.map(|(module, name)| (module, name, Call::Name)));
    // Batches of torch_geometric are made by a call of an instance of this.
    allow.add(&[("torch_geometric.data.batch", "DynamicInheritanceGetter", Call::Factory)]);
    for dtype in Dtype::ALL {
        allow.add(&[("torch", dtype.name(), Call::Name)]);
    }
    for storage in Dtype::STORAGES {
        allow.add(&[("torch", storage, Call::Name), ("torch.cuda", storage, Call::Name)]);
    }
    for name in TYPES {
        allow.add(&[("builtins", name, Call::Name), ("__builtin__", name, Call::Name)]);
    }
    allow
}

/// Bounds for files that somebody chose to open, and that take no more than `memory`.
///
/// Cycles are kept, because torch_geometric's objects point back at their owner; the builder looks out for them.
pub(crate) fn limits(memory: Bytes) -> Limits {
    Limits {
        memory: memory.get(),
        nodes: 32 << 20,
        items: 128 << 20,
        text_bytes: 1 << 30,
        memo: 32 << 20,
        depth: 200,
        walk: 32 << 20,
        cycles: Cycles::Keep,
        far_bytes: FAR_BYTES,
    }
}
