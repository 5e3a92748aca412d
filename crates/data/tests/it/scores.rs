//! Tables of scores that are written here, read back.

use lowtide_data::{Scores, write_scores};
use tempfile::tempdir;

#[test]
fn scores_come_back_even_with_odd_ids() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("scores.csv");
    let rows = [("plain", 0.1_f32), ("with,comma", -3.5e-20), ("with \"quotes\"", f32::MAX)];
    write_scores(&path, rows.map(|(id, score)| (id.to_owned(), score))).unwrap();
    let scores = Scores::read(&path).unwrap();
    for (id, score) in rows {
        assert_eq!(scores.get(id).map(|there| there as f32), Some(score));
    }
    assert_eq!(scores.len(), 3);
}
