//! What a log shows besides running out of memory.

use crate::verdict::Remark;

/// What a line of a log gives rise to.
pub(crate) fn remark(line: &str) -> Option<Remark> {
    if line.contains("GradScaler") && line.contains("deprecated") {
        return Some(Remark {
            kind: "deprecated_grad_scaler",
            text: "torch.cuda.amp.GradScaler(...) is deprecated: write torch.amp.GradScaler('cuda', ...)".to_owned(),
        });
    }
    if line.contains("torch.cuda.amp.autocast") && line.contains("deprecated") {
        return Some(Remark {
            kind: "deprecated_autocast",
            text: "torch.cuda.amp.autocast(...) is deprecated: write torch.amp.autocast('cuda', ...)".to_owned(),
        });
    }
    if line.contains("Not enough SMs to use max_autotune_gemm mode") {
        return Some(Remark {
            kind: "too_few_multiprocessors",
            text:
                "the card has too few multiprocessors for max_autotune_gemm: torch.compile falls back to its default, \
                   which is harmless and not why memory ran out"
                    .to_owned(),
        });
    }
    if line.contains("driver on your system is too old") {
        let text =
            "the driver is older than this torch needs: update the driver, or install a torch built for an older CUDA";
        return Some(Remark { kind: "driver_too_old", text: text.to_owned() });
    }
    if line.contains("detected CUDA version") && line.contains("mismatches the version that was used to compile") {
        let text = "torch and the CUDA toolkit do not go together: build extensions with the CUDA version torch was \
            built with";
        return Some(Remark { kind: "cuda_mismatch", text: text.to_owned() });
    }
    if line.contains("is not compatible with the current PyTorch installation") {
        let text = "this torch has no kernels for the card: install a torch built for its compute capability";
        return Some(Remark { kind: "card_not_supported", text: text.to_owned() });
    }
    if line.contains("no kernel image is available for execution") {
        let text = "this torch has no kernels for the card: install a torch built for its compute capability";
        return Some(Remark { kind: "card_not_supported", text: text.to_owned() });
    }
    if says_no_bf16(line) {
        let text = "the card has no bf16: use fp16 with a GradScaler, which takes the same memory";
        return Some(Remark { kind: "no_bf16", text: text.to_owned() });
    }
    if line.contains("expandable_segments not supported on this platform") {
        let text = "expandable segments are not there on this platform: the setting has no effect";
        return Some(Remark { kind: "no_expandable_segments", text: text.to_owned() });
    }
    let (torch, cuda) = versions(line)?;
    (torch >= (2, 6) && cuda.starts_with("cu11")).then(|| Remark {
        kind: "old_cuda_build",
        text: format!("torch {}.{} built for {cuda}: wheels for CUDA 12 are the ones kept up", torch.0, torch.1),
    })
}

fn says_no_bf16(line: &str) -> bool {
    (line.contains("bfloat16") || line.contains("bf16"))
        && ["does not support", "not supported", "isn't supported", "Your setup doesn't support bf16"]
            .iter()
            .any(|words| line.contains(words))
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
            ("torch 2.6.0+cu118 on linux", Some("old_cuda_build")),
            ("torch 2.6.0+cu124 on linux", None),
            ("loss 3.1", None),
        ] {
            assert_eq!(remark(line).map(|remark| remark.kind), kind, "{line}");
        }
    }
}
