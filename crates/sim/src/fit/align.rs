//! Two sequences beside each other: the longest common subsequence by Myers' greedy method.

/// How many edits are followed at most; what it remembers grows with their square.
const MOST_EDITS: usize = 6000;

/// The pairs of a longest common subsequence under any relation, in order, or none where the sequences differ too much.
///
/// That the greedy method may take every match it meets holds for a relation that is no equality too: whoever is matched later could be
/// matched now.
pub(super) fn longest_common(
    lengths: (usize, usize),
    is_match: impl Fn(usize, usize) -> bool,
) -> Option<Vec<(usize, usize)>> {
    let (n, m) = (lengths.0 as isize, lengths.1 as isize);
    let most = (lengths.0 + lengths.1).min(MOST_EDITS);
    let middle = most as isize + 1;
    let mut reach = vec![0_isize; 2 * most + 3];
    // The rows that were needed to get this far, for the way back.
    let mut rows: Vec<Vec<isize>> = Vec::new();
    for edits in 0..=most as isize {
        for diagonal in (-edits..=edits).step_by(2) {
            let at = (middle + diagonal) as usize;
            let is_down = diagonal == -edits || diagonal != edits && reach[at - 1] < reach[at + 1];
            let mut x = if is_down { reach[at + 1] } else { reach[at - 1] + 1 };
            while x < n && x - diagonal < m && x - diagonal >= 0 && is_match(x as usize, (x - diagonal) as usize) {
                x += 1;
            }
            reach[at] = x;
            if x >= n && x - diagonal >= m {
                return Some(way_back(&rows, edits, lengths));
            }
        }
        rows.push(reach[(middle - edits) as usize..=(middle + edits) as usize].to_vec());
    }
    None
}

fn way_back(rows: &[Vec<isize>], edits: isize, lengths: (usize, usize)) -> Vec<(usize, usize)> {
    let (mut x, mut y) = (lengths.0 as isize, lengths.1 as isize);
    let mut pairs = Vec::new();
    let mut matched = |x: &mut isize, y: &mut isize, start: isize| {
        while *x > start {
            (*x, *y) = (*x - 1, *y - 1);
            pairs.push((*x as usize, *y as usize));
        }
    };
    for count in (1..=edits).rev() {
        let row = &rows[count as usize - 1];
        let reach = |diagonal: isize| row.get((diagonal + count - 1) as usize).copied();
        let diagonal = x - y;
        let [below, above] = [diagonal - 1, diagonal + 1].map(|at| if at.abs() < count { reach(at) } else { None });
        let is_down = diagonal == -count || diagonal != count && below < above;
        let before = if is_down { above } else { below }.expect("the way back meets rows that the way there made");
        let start = if is_down { before } else { before + 1 };
        matched(&mut x, &mut y, start);
        (x, y) = if is_down { (x, y - 1) } else { (x - 1, y) };
    }
    matched(&mut x, &mut y, 0);
    pairs.reverse();
    pairs
}

#[cfg(test)]
mod tests {
    use super::longest_common;

    fn common(one: &str, other: &str) -> String {
        let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
        let pairs = longest_common((one.len(), other.len()), |i, j| one[i] == other[j]).unwrap();
        assert!(pairs.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 < two[1].1));
        pairs
            .iter()
            .map(|(i, j)| {
                assert_eq!(one[*i], other[*j]);
                one[*i]
            })
            .collect()
    }

    #[test]
    fn longest_common_subsequences() {
        for (one, other, length) in [
            ("", "", 0),
            ("abc", "", 0),
            ("", "abc", 0),
            ("abc", "abc", 3),
            ("abc", "xyz", 0),
            ("abcabba", "cbabac", 4),
            ("aXbXc", "abc", 3),
            ("abc", "XaYbZc", 3),
        ] {
            assert_eq!(common(one, other).len(), length, "{one} {other}");
        }
    }

    #[test]
    fn sequences_that_have_nothing_in_common_are_given_up() {
        assert_eq!(longest_common((10_000, 10_000), |_, _| false), None);
    }
}
