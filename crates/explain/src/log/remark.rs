//! What a log shows besides running out of memory.

use serde::Serialize;

/// Something in the log that is worth mending, whatever happened to memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Remark {
    /// A short name of its kind, the same in every log.
    pub kind: &'static str,
    /// What it means and what to do.
    pub text: String,
}

/// All words that a line must have, the kind of the remark, and its text.
const REMARKS: [(&[&str], &str, &str); 8] = [
    (
        &["GradScaler", "deprecated"],
        "deprecated_grad_scaler",
        "torch.cuda.amp.GradScaler(...) is deprecated: write torch.amp.GradScaler('cuda', ...)",
    ),
    (
        &["torch.cuda.amp.autocast", "deprecated"],
        "deprecated_autocast",
        "torch.cuda.amp.autocast(...) is deprecated: write torch.amp.autocast('cuda', ...)",
    ),
    (
        &["Not enough SMs to use max_autotune_gemm mode"],
        "too_few_multiprocessors",
        "the card has too few multiprocessors for max_autotune_gemm: torch.compile falls back to its default, \
         which is harmless and not why memory ran out",
    ),
    (
        &["driver on your system is too old"],
        "driver_too_old",
        "the driver is older than this torch needs: update the driver, or install a torch built for an older CUDA",
    ),
    (
        &["detected CUDA version", "mismatches the version that was used to compile"],
        "cuda_mismatch",
        "torch and the CUDA toolkit do not go together: build extensions with the CUDA version torch was built with",
    ),
    (&["is not compatible with the current PyTorch installation"], "card_not_supported", NO_KERNELS),
    (&["no kernel image is available for execution"], "card_not_supported", NO_KERNELS),
    (
        &["expandable_segments not supported on this platform"],
        "no_expandable_segments",
        "expandable segments are not there on this platform: the setting has no effect",
    ),
];
const NO_KERNELS: &str = "this torch has no kernels for the card: install a torch built for its compute capability";

/// Words of which a line must have one to give rise to a remark.
pub(super) fn words() -> impl Iterator<Item = &'static str> {
    REMARKS.iter().map(|(words, ..)| words[0]).chain(["bfloat16", "bf16", "+cu1"])
}

/// What a line of a log gives rise to.
pub(super) fn remark(line: &str) -> Option<Remark> {
    let known = REMARKS.iter().find(|(words, ..)| words.iter().all(|word| line.contains(word)));
    if let Some((_, kind, text)) = known {
        return Some(Remark { kind, text: (*text).to_owned() });
    }
    if says_no_bf16(line) {
        let text = "the card has no bf16: use fp16 with a GradScaler, which takes the same memory";
        return Some(Remark { kind: "no_bf16", text: text.to_owned() });
    }
    let (torch, cuda) = versions(line)?;
    (torch >= (2, 6) && cuda.starts_with("cu11")).then(|| Remark {
        kind: "old_cuda_build",
        text: format!("torch {}.{} built for {cuda}: wheels for CUDA 12 are the ones kept up", torch.0, torch.1),
    })
}

/// `does not support bf16`, `bfloat16 is not supported`; that something else is not, and bf16 is taken instead, is another matter.
fn says_no_bf16(line: &str) -> bool {
    ["bfloat16", "bf16"].iter().any(|name| {
        line.match_indices(name).any(|(at, _)| {
            let before = line[..at].trim_end_matches([' ', '`', '\'', '"']);
            let after = line[at + name.len()..].trim_start_matches(['`', '\'', '"']);
            let lacks = before.ends_with("not support")
                || before.ends_with("n't support")
                || before.ends_with("no support for");
            let after = after.trim_start().trim_start_matches("is ").trim_start_matches("are ");
            lacks || after.starts_with("not supported") || after.starts_with("isn't supported")
        })
    })
}

/// `torch 2.6.0+cu118` as version and build.
fn versions(line: &str) -> Option<((u32, u32), String)> {
    let at = line.find("+cu1")?;
    let start = line[..at].rfind(|c: char| !c.is_ascii_digit() && c != '.').map_or(0, |start| start + 1);
    let mut parts = line.get(start..at)?.split('.');
    let version = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let build = line[at + 1..].chars().take_while(char::is_ascii_alphanumeric).collect();
    line[..start].to_ascii_lowercase().contains("torch").then_some((version, build))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_what_they_give_rise_to() {
        for (line, kind) in [
            (
                "train.py:196: FutureWarning: `torch.cuda.amp.GradScaler(args...)` is deprecated.",
                Some("deprecated_grad_scaler"),
            ),
            ("W0101 [0/0] Not enough SMs to use max_autotune_gemm mode", Some("too_few_multiprocessors")),
            ("The NVIDIA driver on your system is too old (found version 11040).", Some("driver_too_old")),
            (
                "RuntimeError: The detected CUDA version (12.4) mismatches the version that was used to compile \
                 PyTorch (11.8)",
                Some("cuda_mismatch"),
            ),
            ("ValueError: Your setup doesn't support bf16/gpu.", Some("no_bf16")),
            ("RuntimeError: bfloat16 is not supported on this device", Some("no_bf16")),
            ("fp8 is not supported here, using bf16 instead", None),
            ("torch 2.6.0+cu118 on linux", Some("old_cuda_build")),
            ("torch 2.6.0+cu124 on linux", None),
            ("loss 3.1", None),
        ] {
            assert_eq!(remark(line).map(|remark| remark.kind), kind, "{line}");
        }
    }
}
