//! Everyday words for memory that could not be had, and for what makes a line talk.

/// Attempts that failed, each of which needs a word for what was to be had.
pub(super) const FAILURES: [&str; 32] = [
    "oom allocating",
    "failed to allocate",
    "fail to allocate",
    "failed to alloc",
    "failed to malloc",
    "failed to reserve",
    "failed to map",
    "failed allocating",
    "failed allocation",
    "failure allocating",
    "unable to allocate",
    "unable to reserve",
    "could not allocate",
    "couldn't allocate",
    "cannot allocate",
    "can not allocate",
    "can't allocate",
    "not able to allocate",
    "not available to allocate",
    "cannot malloc",
    "could not be allocated",
    "cannot be allocated",
    "can not be allocated",
    "can not malloc",
    "unable to malloc",
    "error allocating",
    "error while allocating",
    "allocation failed",
    "allocation failure",
    "alloc failed",
    "allocation error",
    "malloc failed",
];
/// `Cannot allocate memory` as the C library has it in other languages.
pub(super) const TRANSLATIONS: [&str; 11] = [
    "nicht genügend hauptspeicher",
    "impossible d'allouer de la mémoire",
    "no se pudo asignar memoria",
    "impossibile allocare memoria",
    "possível alocar memória",
    "е удалось выделить память",
    "евозможно выделить память",
    "nie można przydzielić pamięci",
    "无法分配内存",
    "メモリを確保できません",
    "메모리를 할당할 수 없습니다",
];
/// Too little memory, in languages that need no blanks.
pub(super) const SHORTAGES: [&str; 6] =
    ["内存不足", "显存不足", "記憶體不足", "メモリ不足", "메모리 부족", "메모리가 부족"];
/// Sentences of systems and programs that mean nothing else: MATLAB, macOS, SageMaker, Emscripten, Kubernetes, Ray,
/// Wav2Lip and what is built on it, ollama.
pub(super) const SIGNATURES: [&str; 8] = [
    "exceeds maximum array size preference",
    "run out of application memory",
    "use an instance type with more memory",
    "aborted(oom)",
    "had condition: [memorypressure]",
    "of the memory on node ",
    "image too big to run face detection on gpu",
    "llama runner exited, you may not have enough available memory",
];
/// A worker that is gone, by who says himself that memory may have been full: nnU-Net.
pub(super) const WORKERS_KILLED: [&str; 3] = [
    "your RAM was full and the worker was killed",
    "One of your background processes is missing",
    "Please also check whether your RAM was full",
];
/// The same by who says nothing of the reason: Dask, Ray.
pub(super) const WORKERS_GONE: [&str; 4] = [
    "but all those workers died while running it",
    "The worker died unexpectedly while executing this task",
    "The actor died unexpectedly before finishing this task",
    "A worker died or was killed while executing a task",
];
/// What is allocated that is memory.
pub(super) const KINDS: &str = "memory mem ram vram bytes byte kb mb gb kib mib gib buffer buffers heap tensor workspace array matrix vector \
    arena hbm malloc calloc mmap cudamalloc region oom";
/// Whose memory it is: beside a word for memory no more than that, for ports, cards and addresses are allocated too.
pub(super) const OWNERS: &str = "gpu cuda device pool page pages";
/// What else is allocated.
pub(super) const OTHERS: &str = "port ports address addresses pty ptys ip irq channel channels job jobs node nodes slot slots lun \
    license licenses inode inodes handle handles descriptor descriptors fd fds thread threads available";
/// Before a word for memory: too little of it.
pub(super) const LACKS: [&str; 12] = [
    "fit into",
    "fit in",
    "exceeds",
    "not enough",
    "insufficient",
    "out of",
    "lack of",
    "too little",
    "no more",
    "no free",
    "exhausted all",
    "exhausted available",
];
pub(super) const MEMORIES: [&str; 5] = ["memory", "vram", "ram", "mem", "heap"];
/// Whole phrases for too little.
pub(super) const LACKING: [&str; 8] = [
    "memory exhausted",
    "memory is exhausted",
    "heap exhausted",
    "oom-killed",
    "oom killed",
    "oomkilled",
    "memory error",
    "bad allocation",
];
/// What stands before what is no error: levels, and words like them.
pub(super) const CALM: &str = "trace debug info notice warn warning warnings hint note tip verbose";
/// What a program does about it, or says of what would come.
pub(super) const GOES_ON: [&str; 14] = [
    "retry",
    "retrying",
    "trying again",
    "try again with",
    "falling back",
    "fallback",
    "fall back",
    "instead",
    "skipping",
    "will be",
    "may be slow",
    "ignored",
    "ignoring",
    "continuing",
];
/// Words of an error before it.
pub(super) const ERRORS: &str = "error err errors fatal critical exception failed failure panic panicked abort aborted aborting terminate \
    terminating crash crashed e";
/// How a log shows that a program ended by what stands above.
pub(super) const ENDS: [&str; 14] = [
    "abort",
    "core dumped",
    "terminat",
    "traceback",
    "stack trace",
    "stack-trace",
    "backtrace",
    "error",
    "exit",
    "fatal",
    "panic",
    "killed",
    "segmentation fault",
    "failed",
];
/// How lines of documents begin.
pub(super) const DOCUMENTS: [&str; 10] = ["- ", "#", "//", "+", "</", "|", "\"", "`", "'", "> "];
