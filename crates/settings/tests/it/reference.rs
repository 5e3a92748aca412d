//! `docs/reference/settings.md` names every key that there is, and no other.

use std::collections::BTreeSet;

use lowtide_settings::RunSettings;

const PAGE: &str = include_str!("../../../../docs/reference/settings.md");

#[test]
fn every_key_is_in_the_reference() {
    let settings = serde_json::to_value(RunSettings::default()).unwrap();
    let mut keys = BTreeSet::new();
    let mut groups = BTreeSet::new();
    for (name, value) in settings.as_object().unwrap() {
        match value.as_object() {
            // What a model and its data have is the workload's own.
            Some(_) if name == "model" || name == "data" => {}
            Some(group) => {
                groups.insert(name.as_str());
                keys.extend(group.keys().map(|key| format!("{name}.{key}")));
            }
            None => {
                keys.insert(name.clone());
            }
        }
    }
    let cells = PAGE.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let told: BTreeSet<String> =
        cells.flat_map(|cell| cell.split(',')).map(|key| key.replace(['`', ' '], "")).collect();
    let is_ours = |key: &str| !key.contains('.') || groups.contains(key.split('.').next().unwrap());
    let told: BTreeSet<String> = told.into_iter().filter(|key| is_ours(key)).collect();
    assert_eq!(told, keys);
}
