//! What decides the bits on the host: threads, instruction sets and versions, as the libraries tell them, and how all of
//! that is fixed.
//!
//! LibTorch computes on the CPU by its own loops, by MKL and by oneDNN. Each picks the widest instructions that the
//! processor has and shares its work among as many threads as the process may use, and each order of adding gives other
//! bits. [`fix_environment`] and [`fix_threads`] take both choices away. MKL, oneDNN and LibTorch read their variables
//! at their first use, so those may be set by this process; OpenMP reads its own when it is loaded, and is told by calls.

use std::env;
use std::fs;
use std::num::NonZeroU32;
use std::ptr;

use lowtide_core::{Instructions, Numerics, NumericsChoice, Threads, Versions};

use crate::device::DeviceFacts;
use crate::error::{Result, TorchError};
use crate::ffi;
use crate::message::taken;

/// Threads of a deterministic run where nobody names a number: the same on every machine, since bits depend on it.
pub const FIXED_THREADS: NonZeroU32 = NonZeroU32::MIN;

/// Variables by which somebody chooses what these libraries compute with. How much they print is nobody's harm.
const PREFIXES: [&str; 3] = ["MKL_", "ONEDNN_", "DNNL_"];
const PRINTING: &str = "_VERBOSE";

/// What a deterministic run sets: the instructions that nearly every x86 processor of the last ten years has.
const FIXED: [(&str, &str); 4] =
    [("ATEN_CPU_CAPABILITY", "avx2"), ("MKL_CBWR", "AVX2"), ("MKL_DYNAMIC", "FALSE"), ("ONEDNN_MAX_CPU_ISA", "AVX2")];

/// Fixes the instruction sets of the libraries, whatever the environment says of them.
///
/// To be called at the start of `main`, like [`crate::cuda::set_environment`], before anything is computed: each library
/// looks once. [`check_fixed`] tells whether that was early enough.
pub fn fix_environment() {
    let is_theirs = |name: &str| PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && !name.contains(PRINTING);
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in names.filter(|name| is_theirs(name)).collect::<Vec<_>>() {
        // SAFETY: done once, before the engine starts threads that read the environment.
        unsafe { env::remove_var(name) };
    }
    for (name, value) in FIXED {
        // SAFETY: as above.
        unsafe { env::set_var(name, value) };
    }
}

/// Fixes the number of threads that share an operation on the host, whatever processors the process may use.
pub fn fix_threads(threads: NonZeroU32) -> Result<()> {
    let count = i32::try_from(threads.get()).unwrap_or(i32::MAX);
    let mut team = 0;
    // SAFETY: `team` is valid for writing through the call.
    unsafe { ffi::lt_set_threads(count, &mut team) }.check()?;
    if team == count {
        return Ok(());
    }
    Err(TorchError::Input(format!(
        "{threads} threads cannot be had: OpenMP gives {team}. OMP_THREAD_LIMIT or OMP_MAX_ACTIVE_LEVELS in the \
         environment may be the reason: unset them, or name fewer with --threads"
    )))
}

/// Calls what MKL finds at its first use once, by one thread: see the shim.
pub(crate) fn warm_up() -> Result<()> {
    // SAFETY: no pointers cross.
    unsafe { ffi::lt_warm_up_libraries() }.check()
}

/// What decides the bits now, beside settings and data.
pub fn numerics(choice: NumericsChoice, facts: &DeviceFacts) -> Result<Numerics> {
    let mut library = ffi::LibraryFacts::default();
    let mut texts = ptr::null_mut();
    // SAFETY: both are valid for writing through the calls; on success `texts` is a text that is ours.
    let texts = unsafe {
        ffi::lt_library_facts(&mut library).check()?;
        ffi::lt_library_texts(&mut texts).check()?;
        taken(texts)
    };
    let mut texts = texts.lines().map(str::to_owned);
    let mut text = || texts.next().unwrap_or_default();
    let told = |count: i32| u32::try_from(count).ok();
    let flag = |value: i32| told(value).map(|value| value != 0);
    let processor = Processor::read();
    let has_mkl = library.mkl_setting >= 0;
    let device = if facts.device.is_cuda() { facts.name.clone() } else { processor.name.clone() };
    Ok(Numerics {
        choice,
        device,
        threads: Threads {
            libtorch: told(library.threads).unwrap_or(1),
            openmp_dynamic: flag(library.openmp_dynamic).unwrap_or(false),
            mkl: told(library.mkl_threads).filter(|_| has_mkl),
            mkl_dynamic: flag(library.mkl_dynamic).filter(|_| has_mkl),
        },
        instructions: Instructions {
            libtorch: text(),
            mkl: has_mkl.then(|| mkl_branch(library.mkl_setting, library.mkl_auto_branch)),
            onednn: processor.onednn(onednn_limit().as_deref()),
        },
        versions: Versions {
            libtorch: text(),
            mkl: Some(mkl_version(&text())).filter(|_| has_mkl),
            onednn: onednn_version(&text()),
        },
    })
}

/// Refuses instruction sets that are others than [`fix_environment`] asks for.
///
/// MKL takes its own choice on processors that Intel did not make; that is a choice of the processor, and is written down.
pub fn check_fixed(numerics: &Numerics) -> Result<()> {
    let Instructions { libtorch, mkl, onednn } = &numerics.instructions;
    let is_fixed = |branch: &Option<String>| branch.as_deref().is_none_or(|branch| branch == "AVX2");
    let is_mkl_fixed = is_fixed(mkl) || mkl.as_deref().is_some_and(|branch| branch.starts_with("AUTO"));
    if !cfg!(target_arch = "x86_64") || (libtorch == "AVX2" && is_mkl_fixed && is_fixed(onednn)) {
        return Ok(());
    }
    let none = "none";
    Err(TorchError::Input(format!(
        "instruction sets cannot be fixed to AVX2 on this processor: LibTorch has {libtorch}, MKL {}, oneDNN {}",
        mkl.as_deref().unwrap_or(none),
        onednn.as_deref().unwrap_or(none)
    )))
}

/// What the system tells of the processor.
struct Processor {
    name: String,
    flags: Vec<String>,
}

impl Processor {
    fn read() -> Processor {
        Processor::of(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
    }

    fn of(text: &str) -> Processor {
        let field = |name: &str| {
            let line = text.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
            line.split_once(':').map(|(_, value)| value.trim().to_owned())
        };
        let flags = field("flags").unwrap_or_default();
        Processor {
            name: field("model name").unwrap_or_else(|| env::consts::ARCH.to_owned()),
            flags: flags.split_whitespace().map(str::to_owned).collect(),
        }
    }

    /// The most that oneDNN uses: what the processor has, up to the limit that its variable sets.
    fn onednn(&self, limit: Option<&str>) -> Option<String> {
        // Each needs those below it; from oneDNN's "CPU dispatcher control".
        let sets = [
            ("AVX512_CORE_AMX_FP16", "amx_fp16"),
            ("AVX512_CORE_AMX", "amx_tile"),
            ("AVX512_CORE_FP16", "avx512_fp16"),
            ("AVX512_CORE_BF16", "avx512_bf16"),
            ("AVX512_CORE_VNNI", "avx512_vnni"),
            ("AVX512_CORE", "avx512f"),
            ("AVX2_VNNI", "avx_vnni"),
            ("AVX2", "avx2"),
            ("AVX", "avx"),
            ("SSE41", "sse4_1"),
        ];
        let place = limit.and_then(|limit| sets.iter().position(|(name, _)| name.eq_ignore_ascii_case(limit)));
        let allowed = &sets[place.unwrap_or(0)..];
        let has = |flag: &str| self.flags.iter().any(|one| one == flag);
        allowed.iter().find(|(_, flag)| has(flag)).map(|(name, _)| (*name).to_owned())
    }
}

fn onednn_limit() -> Option<String> {
    env::var("ONEDNN_MAX_CPU_ISA").or_else(|_| env::var("DNNL_MAX_CPU_ISA")).ok()
}

/// The branch of MKL's code, by the names that `MKL_CBWR` has for them.
fn mkl_branch(setting: i32, auto: i32) -> String {
    const STRICT: i32 = 0x1_0000;
    let name = |branch: i32| match branch {
        3 => "COMPATIBLE",
        4 => "SSE2",
        6 => "SSSE3",
        7 => "SSE4_1",
        8 => "SSE4_2",
        9 => "AVX",
        10 => "AVX2",
        11 => "AVX512_MIC",
        12 => "AVX512",
        13 => "AVX512_MIC_E1",
        14 => "AVX512_E1",
        _ => "unknown",
    };
    let strict = if setting & STRICT == 0 { "" } else { ",STRICT" };
    match setting & !STRICT {
        // Not asked to be reproducible: what the processor has.
        0 | 1 => format!("{} by itself", name(auto)),
        2 => format!("AUTO{strict} ({})", name(auto)),
        branch => format!("{}{strict}", name(branch)),
    }
}

/// `2024.2-Product Build 20240605` of `Intel(R) oneAPI Math Kernel Library Version 2024.2-Product Build 20240605 for ...`.
fn mkl_version(text: &str) -> String {
    let version = text.split_once("Version ").map_or(text, |(_, rest)| rest);
    version.split_once(" for ").map_or(version, |(version, _)| version).to_owned()
}

/// `3.10.2` of `Intel(R) MKL-DNN v3.10.2 (Git Hash ...)`.
fn onednn_version(text: &str) -> Option<String> {
    let (_, rest) = text.split_once(" v")?;
    rest.split_whitespace().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_read() {
        let text =
            "processor\t: 0\nmodel name\t: A Processor\nmodel\t\t: 7\nflags\t\t: sse4_1 avx avx2 avx512f avx512_vnni\n";
        let processor = Processor::of(text);
        assert_eq!(processor.name, "A Processor");
        let check = |limit: Option<&str>, expect: &str| assert_eq!(processor.onednn(limit).as_deref(), Some(expect));
        check(None, "AVX512_CORE_VNNI");
        check(Some("DEFAULT"), "AVX512_CORE_VNNI");
        check(Some("avx512_core_amx"), "AVX512_CORE_VNNI");
        check(Some("AVX2"), "AVX2");
        check(Some("SSE41"), "SSE41");
        assert_eq!(Processor::of("").onednn(None), None);
        assert_eq!(Processor::of("").name, env::consts::ARCH);
    }

    #[test]
    fn branches_and_versions_have_names() {
        assert_eq!(mkl_branch(1, 14), "AVX512_E1 by itself");
        assert_eq!(mkl_branch(2, 10), "AUTO (AVX2)");
        assert_eq!(mkl_branch(0x1_000a, 14), "AVX2,STRICT");
        assert_eq!(mkl_branch(10, 14), "AVX2");
        let mkl =
            "Intel(R) oneAPI Math Kernel Library Version 2024.2-Product Build 20240605 for Intel(R) 64 architecture";
        assert_eq!(mkl_version(mkl), "2024.2-Product Build 20240605");
        assert_eq!(onednn_version("Intel(R) MKL-DNN v3.10.2 (Git Hash f1d4)").as_deref(), Some("3.10.2"));
        assert_eq!(onednn_version("MKLDNN not found"), None);
    }
}
