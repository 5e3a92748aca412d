//! The groups that printed settings stand in: what is set for validation is not set for training.

use lowtide_trainers::{Key, key_of_path};

/// Groups that are open where a line stands, the outermost first.
#[derive(Debug, Default, Clone)]
pub(super) struct Groups(Vec<Group>);

#[derive(Debug, Clone)]
struct Group {
    name: String,
    /// How far the line that opened it is indented.
    indentation: usize,
    /// Whether its settings are not indented any further, as where somebody took blanks off.
    is_flat: Option<bool>,
}

/// No more groups are kept inside of each other, and none has a longer name.
const DEEPEST: usize = 16;
const LONGEST: usize = 64;

impl Groups {
    /// Looks at the next line.
    pub(super) fn note(&mut self, line: &str) {
        let text = line.trim();
        let indentation = line.len() - line.trim_start().len();
        if let Some(last) = self.0.last_mut() {
            last.is_flat.get_or_insert(indentation <= last.indentation);
        }
        let opened = opened(text);
        let goes_on = |group: &Group| match group.is_flat {
            Some(true) => opened.is_none() && is_setting(text),
            _ => indentation > group.indentation || text.is_empty(),
        };
        while self.0.last().is_some_and(|group| !goes_on(group)) {
            self.0.pop();
        }
        if let Some(name) = opened.filter(|_| self.0.len() < DEEPEST) {
            self.0.push(Group { name: name.to_owned(), indentation, is_flat: None });
        }
    }

    /// What a setting is about in these groups.
    pub(super) fn key_of(&self, name: &str) -> Option<Key> {
        let groups = self.0.iter().map(|group| group.name.clone());
        key_of_path(&groups.chain([name.to_owned()]).collect::<Vec<_>>()).map(|(key, _)| key)
    }
}

/// `val:`, `val_dataloader = dict(`, `"val": {`: the group that a line opens.
fn opened(text: &str) -> Option<&str> {
    let head =
        text.strip_suffix(['(', '{', '[']).map_or(text, |head| head.trim_end().trim_end_matches("dict").trim_end());
    let name = head.strip_suffix([':', '='])?.trim_end().trim_matches(['"', '\'']);
    is_name(name).then_some(name)
}

fn is_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    !name.is_empty() && name.len() <= LONGEST && name.chars().all(is_part)
}

/// Whether a line sets something: `batch_size: 1`, `workers=2,`.
fn is_setting(text: &str) -> bool {
    text.split_once([':', '=']).is_some_and(|(name, _)| is_name(name.trim().trim_matches(['"', '\''])))
}

/// What the name at a place of a line is about, where it stands in brackets behind the name of a group: `val=dict(batch_size=1)`.
pub(super) fn key_within(line: &str, at: usize, name: &str) -> Option<Key> {
    let mut depth = 0_u32;
    let opening = line[..at].char_indices().rev().find(|(_, c)| match c {
        ')' | '}' => {
            depth += 1;
            false
        }
        '(' | '{' if depth == 0 => true,
        '(' | '{' => {
            depth -= 1;
            false
        }
        _ => false,
    });
    let group = opening.map_or("", |(place, _)| {
        let head =
            line[..place].trim_end().trim_end_matches("dict").trim_end().trim_end_matches([':', '=', ' ', '"', '\'']);
        &head[head.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')).len()..]
    });
    key_of_path(&[group.to_owned(), name.to_owned()]).map(|(key, _)| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_of_the_groups_they_stand_in() {
        for (text, expected) in [
            ("train_dataloader = dict(\n    batch_size=16,", Some(Key::Batch)),
            (
                "train_dataloader = dict(\n    batch_size=16,\n)\nval_dataloader = dict(\n    batch_size=1,",
                Some(Key::EvalBatch),
            ),
            ("val:\n  batch_size: 1", Some(Key::EvalBatch)),
            ("val:\n  every: 1\n\n  batch_size: 1", Some(Key::EvalBatch)),
            ("val:\n  every: 1\nbatch_size: 32", Some(Key::Batch)),
            ("val:\nevery: 1\nbatch_size: 1", Some(Key::EvalBatch)),
            ("val:\nevery: 1\ntrain:\nbatch_size: 32", Some(Key::Batch)),
            ("Validation:\nit took a while\nbatch_size: 32", Some(Key::Batch)),
            ("data:\n  val:\n    size: 3\n  train:\n    batch_size: 32", Some(Key::Batch)),
            ("{\n  \"eval\": {\n    \"loader\": {\n      \"batch_size\": 1", Some(Key::EvalBatch)),
        ] {
            let mut groups = Groups::default();
            text.lines().for_each(|line| groups.note(line));
            assert_eq!(groups.key_of("batch_size"), expected, "{text}");
        }
    }

    #[test]
    fn groups_on_one_line() {
        for (line, expected) in [
            ("val_dataloader = dict(batch_size=1)", Some(Key::EvalBatch)),
            ("{'train': {'loader': {'x': 1}, 'batch_size': 16}}", Some(Key::Batch)),
            ("{'test': {'loader': {'x': 1}, 'batch_size': 16}}", Some(Key::EvalBatch)),
            ("Namespace(batch_size=1)", Some(Key::Batch)),
            ("batch_size=1", Some(Key::Batch)),
        ] {
            let at = line.find("batch_size").unwrap();
            assert_eq!(key_within(line, at, "batch_size"), expected, "{line}");
        }
    }

    #[test]
    fn groups_are_bounded() {
        let mut groups = Groups::default();
        (0..1000).for_each(|depth| groups.note(&format!("{}a:", " ".repeat(depth))));
        assert_eq!(groups.0.len(), DEEPEST);
    }
}
