//! Names of variables that look as if they were meant for PyTorch or CUDA, which read others.

/// The variables of PyTorch's allocator.
pub(crate) const ALLOCATOR: [&str; 3] = ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"];
/// Others that people set by hand.
const READ: [&str; 3] = ["CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING"];
/// Names that are near and mean something else.
const OTHERS: [&str; 5] = [
    "PYTORCH_NPU_ALLOC_CONF",
    "PYTORCH_XPU_ALLOC_CONF",
    "PYTORCH_MLU_ALLOC_CONF",
    "PYTORCH_MUSA_ALLOC_CONF",
    "PYTORCH_MPS_ALLOC_CONF",
];
/// Letters that a slip of the hand changes.
const SLIP: usize = 2;

/// The name that was meant, where a variable's is none that is read.
pub(crate) fn meant(name: &str) -> Option<&'static str> {
    let known = || ALLOCATOR.into_iter().chain(READ);
    if known().chain(OTHERS).any(|known| known == name) {
        return None;
    }
    let upper = name.to_ascii_uppercase();
    let near = known().map(|known| (distance(&upper, known), known)).min();
    let of_the_allocator =
        upper.contains("ALLOC") && upper.contains("CONF") && (upper.contains("TORCH") || upper.contains("CUDA"));
    match near {
        Some((distance, known)) if distance <= SLIP => Some(known),
        _ => of_the_allocator.then_some(ALLOCATOR[1]),
    }
}

/// How many letters must be put in, taken out or changed to make one word of another.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, same) in other.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *same);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_hand() {
        let cases = [
            ("PYTORCH_CUDA_ALOC_CONF", Some("PYTORCH_CUDA_ALLOC_CONF")),
            ("PYTORCH_CUDA_ALLOCATOR_CONF", Some("PYTORCH_CUDA_ALLOC_CONF")),
            ("PYTORCH_CUDA_ALLOC_CONFIG", Some("PYTORCH_CUDA_ALLOC_CONF")),
            ("PYTORCH_ALLOC_CNF", Some("PYTORCH_ALLOC_CONF")),
            ("CUDA_ALLOC_CONF", Some("PYTORCH_CUDA_ALLOC_CONF")),
            ("CUDA_VISIBLE_DEVICE", Some("CUDA_VISIBLE_DEVICES")),
            ("CUDA_VISBLE_DEVICES", Some("CUDA_VISIBLE_DEVICES")),
            ("cuda_visible_devices", Some("CUDA_VISIBLE_DEVICES")),
            ("CUDA_VISIBLE_DEVICES", None),
            ("PYTORCH_NPU_ALLOC_CONF", None),
            ("NVIDIA_VISIBLE_DEVICES", None),
            ("HIP_VISIBLE_DEVICES", None),
            ("MALLOC_CONF", None),
            ("CUDA_HOME", None),
        ];
        for (name, expected) in cases {
            assert_eq!(meant(name), expected, "{name}");
        }
        assert!(ALLOCATOR.iter().all(|name| meant(name).is_none()));
    }

    #[test]
    fn letters_apart() {
        for (one, other, expected) in [("", "abc", 3), ("abc", "abc", 0), ("abc", "adc", 1), ("kitten", "sitting", 3)] {
            assert_eq!((distance(one, other), distance(other, one)), (expected, expected));
        }
    }
}
