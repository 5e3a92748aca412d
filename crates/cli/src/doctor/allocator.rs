//! The settings of PyTorch's allocator, as it reads them from the environment.

/// What the allocators of PyTorch 2 know.
const KEYS: [&str; 17] = [
    "backend",
    "expandable_segments",
    "garbage_collection_threshold",
    "graph_capture_record_stream_reuse",
    "large_segment_size_mb",
    "max_non_split_rounding_mb",
    "max_split_size_mb",
    "per_process_memory_fraction",
    "pinned_num_register_threads",
    "pinned_reserve_segment_size_mb",
    "pinned_use_background_threads",
    "pinned_use_cuda_host_register",
    "pinned_use_hip_host_register",
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
    "roundup_bypass_threshold_mb",
    "roundup_power2_divisions",
];

/// Why PyTorch does not take these settings, which are `key:value` with commas between.
pub(crate) fn misread(settings: &str) -> Option<String> {
    let settings = split_list(settings);
    settings.map(str::trim).filter(|setting| !setting.is_empty()).find_map(|setting| {
        let Some((key, value)) = setting.split_once(':') else {
            return Some(format!("`{setting}` is no key:value, and PyTorch ends by it"));
        };
        let (key, value) = (key.trim(), value.trim());
        if !KEYS.contains(&key) {
            return Some(format!("PyTorch knows no `{key}`"));
        }
        wrong_value(key, value).map(|wrong| format!("{key} is `{value}`, which {wrong}"))
    })
}

/// Cuts at commas; those in brackets are a list's.
fn split_list(text: &str) -> impl Iterator<Item = &str> {
    let mut within = 0_i32;
    text.split(move |character: char| {
        within += i32::from(character == '[') - i32::from(character == ']');
        character == ',' && within == 0
    })
}

/// What is wrong with a value, as PyTorch 2.11 checks it.
fn wrong_value(key: &str, value: &str) -> Option<&'static str> {
    let is_power = |text: &str| text.parse::<u64>().is_ok_and(u64::is_power_of_two);
    let fraction = || value.parse::<f64>().ok().filter(|number| number.is_finite());
    let at_least = |least: u64| value.parse::<u64>().is_ok_and(|number| number >= least);
    let (good, wrong) = match key {
        "backend" => {
            (matches!(value, "native" | "cudaMallocAsync" | "hipMallocAsync"), "is neither native nor cudaMallocAsync")
        }
        "garbage_collection_threshold" => {
            (fraction().is_some_and(|number| number > 0.0 && number < 1.0), "does not lie between 0 and 1")
        }
        "per_process_memory_fraction" => {
            (fraction().is_some_and(|number| (0.0..=1.0).contains(&number)), "does not lie between 0 and 1")
        }
        "max_split_size_mb" | "max_non_split_rounding_mb" => (at_least(20), "is not 20 or more"),
        "large_segment_size_mb" => (at_least(11), "is not more than 10"),
        "pinned_reserve_segment_size_mb" => (at_least(1), "is not 1 or more"),
        "pinned_num_register_threads" => (is_power(value) && !at_least(129), "is no power of two up to 128"),
        "roundup_power2_divisions" => match value.strip_prefix('[').and_then(|list| list.strip_suffix(']')) {
            // Sizes in MiB with divisions for each, of which 0 is none.
            Some(list) => (
                list.split(',').all(|pair| {
                    pair.split_once(':').is_some_and(|(size, divisions)| {
                        let (size, divisions) = (size.trim(), divisions.trim());
                        (size == ">" || is_power(size)) && (divisions == "0" || is_power(divisions))
                    })
                }),
                "has a number that is no power of two",
            ),
            None => (is_power(value), "is no power of two"),
        },
        "roundup_bypass_threshold_mb" => (at_least(0), "is no number"),
        _ => (matches!(value, "True" | "False"), "is neither True nor False"),
    };
    (!good).then_some(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_allocator() {
        let good = [
            "",
            "expandable_segments:True",
            "max_split_size_mb:128, garbage_collection_threshold:0.8,",
            "max_split_size_mb:20,garbage_collection_threshold:.5,per_process_memory_fraction:1.0",
            "roundup_power2_divisions:[256:1,512:2,>:4],backend:native",
            "roundup_power2_divisions:[256:0,>:4],pinned_num_register_threads:128",
            "roundup_power2_divisions:32,backend:cudaMallocAsync",
        ];
        for settings in good {
            assert_eq!(misread(settings), None, "{settings}");
        }
        let told = |settings: &str| misread(settings).unwrap();
        let no_pair = "`expandable_segments=True` is no key:value, and PyTorch ends by it";
        assert_eq!(told("expandable_segments=True"), no_pair);
        assert_eq!(told("expandable_segment:True"), "PyTorch knows no `expandable_segment`");
        let cases = [
            ("expandable_segments:true", "is neither True nor False"),
            ("garbage_collection_threshold:1.0", "does not lie between 0 and 1"),
            ("garbage_collection_threshold:0", "does not lie between 0 and 1"),
            ("garbage_collection_threshold:80%", "does not lie between 0 and 1"),
            ("roundup_power2_divisions:3", "is no power of two"),
            ("roundup_power2_divisions:[256:1,512:3]", "has a number that is no power of two"),
            ("backend:async", "is neither native nor cudaMallocAsync"),
            ("max_split_size_mb:19", "is not 20 or more"),
            ("max_split_size_mb:128MB", "is not 20 or more"),
            ("pinned_num_register_threads:256", "is no power of two up to 128"),
        ];
        for (settings, wrong) in cases {
            let (key, value) = settings.split_once(':').unwrap();
            assert_eq!(told(&format!("backend:native,{settings}")), format!("{key} is `{value}`, which {wrong}"));
        }
    }
}
