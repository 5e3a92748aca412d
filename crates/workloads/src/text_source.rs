//! A source of synthetic text whose entropy is known exactly.
//!
//! It is a made-up language: a lexicon of short words, drawn independently with Zipf's frequencies and set apart by blanks.
//! A sample starts at a word boundary. What has been read since the last blank says exactly where in the lexicon's tree
//! of prefixes the text is, so the entropy of every next letter, and its mean over a sample, follow by counting: no model
//! can have a smaller loss, and a good one comes close to it.
//!
//! Letters are tokens: 0 is the blank, 1 to 26 are a to z. Samples are pure functions of (seed, number).

use std::collections::HashMap;

use lowtide_generators::Random;

/// Letters and the blank.
pub(crate) const VOCABULARY: i64 = 27;
const BLANK: u8 = 0;
const WORDS: usize = 48;

/// The language and its statistics.
#[derive(Debug, Clone)]
pub struct TextSource {
    seed: u64,
    words: Vec<Vec<u8>>,
    /// Cumulative frequencies of the words, up to 1.
    cumulative: Vec<f64>,
}

impl TextSource {
    /// The language of a seed. The same seed gives the same words and the same samples.
    #[must_use]
    pub fn new(seed: u64) -> TextSource {
        let words = lexicon(&mut Random::new(seed, 0));
        let weights: Vec<f64> = (0..words.len()).map(|rank| 1.0 / (rank as f64 + 1.0)).collect();
        let total: f64 = weights.iter().sum();
        let cumulative = weights
            .iter()
            .scan(0.0, |sum, weight| {
                *sum += weight / total;
                Some(*sum)
            })
            .collect();
        TextSource { seed, words, cumulative }
    }

    /// Sample `number`: `length` tokens, the first of them a blank.
    #[must_use]
    pub fn sample(&self, number: u64, length: usize) -> Vec<u8> {
        let mut random = Random::new(self.seed, number.wrapping_add(1));
        let mut tokens = Vec::with_capacity(length + 16);
        tokens.push(BLANK);
        while tokens.len() < length {
            tokens.extend_from_slice(&self.words[self.draw(random.unit())]);
            tokens.push(BLANK);
        }
        tokens.truncate(length);
        tokens
    }

    /// The mean entropy of the `targets` tokens that follow a sample's first one, in nats a token.
    #[must_use]
    pub fn entropy(&self, targets: usize) -> f64 {
        let tree = PrefixTree::new(&self.words, &self.cumulative);
        let mut state = vec![0.0; tree.nodes.len()];
        state[0] = 1.0;
        let mut sum = 0.0;
        for _ in 0..targets {
            sum += tree.nodes.iter().zip(&state).map(|(node, chance)| chance * node.entropy()).sum::<f64>();
            state = tree.advance(&state);
        }
        sum / targets as f64
    }

    /// Tokens as text, for people.
    #[must_use]
    pub fn text(tokens: &[u8]) -> String {
        tokens.iter().map(|token| if *token == BLANK { ' ' } else { char::from(b'a' - 1 + token) }).collect()
    }

    fn draw(&self, unit: f64) -> usize {
        self.cumulative.partition_point(|sum| *sum <= unit).min(self.words.len() - 1)
    }
}

/// Words of one to three syllables, all different.
fn lexicon(random: &mut Random) -> Vec<Vec<u8>> {
    const ONSETS: &[u8] = b"bdfgklmnprstvz";
    const VOWELS: &[u8] = b"aeiou";
    let mut words: Vec<Vec<u8>> = Vec::new();
    while words.len() < WORDS {
        let mut word = Vec::new();
        for _ in 0..1 + random.below(3) {
            word.push(pick(random, ONSETS));
            word.push(pick(random, VOWELS));
        }
        let tokens: Vec<u8> = word.iter().map(|letter| letter - b'a' + 1).collect();
        if !words.contains(&tokens) {
            words.push(tokens);
        }
    }
    words
}

fn pick(random: &mut Random, letters: &[u8]) -> u8 {
    letters[random.below(letters.len() as u64) as usize]
}

/// All beginnings of words, with the chances of what follows. The blank leads back to the root.
struct PrefixTree {
    nodes: Vec<Node>,
}

#[derive(Default)]
struct Node {
    /// Next token, node it leads to, chance.
    next: Vec<(u8, usize, f64)>,
}

impl Node {
    fn entropy(&self) -> f64 {
        -self.next.iter().map(|(_, _, chance)| chance * chance.ln()).sum::<f64>()
    }
}

impl PrefixTree {
    fn new(words: &[Vec<u8>], cumulative: &[f64]) -> PrefixTree {
        let mut index: HashMap<Vec<u8>, usize> = HashMap::from([(Vec::new(), 0)]);
        let mut mass = vec![0.0];
        let mut leaving: Vec<HashMap<u8, (usize, f64)>> = vec![HashMap::new()];
        let mut before = 0.0;
        for (word, sum) in words.iter().zip(cumulative) {
            let chance = sum - before;
            before = *sum;
            let mut node = 0;
            mass[0] += chance;
            for length in 1..=word.len() {
                let prefix = word[..length].to_vec();
                let child = *index.entry(prefix).or_insert_with(|| {
                    mass.push(0.0);
                    leaving.push(HashMap::new());
                    mass.len() - 1
                });
                leaving[node].entry(word[length - 1]).or_insert((child, 0.0)).1 += chance;
                mass[child] += chance;
                node = child;
            }
            leaving[node].entry(BLANK).or_insert((0, 0.0)).1 += chance;
        }
        let nodes = leaving
            .into_iter()
            .zip(mass)
            .map(|(edges, total)| Node {
                next: edges.into_iter().map(|(token, (child, chance))| (token, child, chance / total)).collect(),
            })
            .collect();
        PrefixTree { nodes }
    }

    fn advance(&self, state: &[f64]) -> Vec<f64> {
        let mut next = vec![0.0; state.len()];
        for (node, chance) in self.nodes.iter().zip(state) {
            for (_, child, share) in &node.next {
                next[*child] += chance * share;
            }
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_pure_and_different() {
        let source = TextSource::new(7);
        assert_eq!(source.sample(3, 80), source.sample(3, 80));
        assert_ne!(source.sample(3, 80), source.sample(4, 80));
        assert_ne!(source.sample(3, 80), TextSource::new(8).sample(3, 80));
        assert_eq!(source.sample(3, 80)[..40], source.sample(3, 40));
        assert!(source.sample(5, 500).iter().all(|token| i64::from(*token) < VOCABULARY));
    }

    /// The best possible predictor, built from the lexicon, must measure the entropy on drawn text.
    #[test]
    fn the_entropy_is_what_a_perfect_model_measures() {
        let source = TextSource::new(1);
        let tree = PrefixTree::new(&source.words, &source.cumulative);
        let (mut sum, mut count) = (0.0, 0.0);
        for number in 0..4000 {
            let mut node = 0;
            for token in &source.sample(number, 65)[1..] {
                let (_, child, chance) = tree.nodes[node].next.iter().find(|edge| edge.0 == *token).unwrap();
                sum -= chance.ln();
                count += 1.0;
                node = *child;
            }
        }
        let measured = sum / count;
        let entropy = source.entropy(64);
        assert!((measured - entropy).abs() < 0.01 * entropy, "{measured} against {entropy}");
        assert!(entropy > 0.3 && entropy < 1.5, "{entropy}");
    }

    #[test]
    fn text_reads_as_words() {
        let source = TextSource::new(1);
        let text = TextSource::text(&source.sample(0, 30));
        assert!(
            text.starts_with(' ') && text.trim().chars().all(|letter| letter == ' ' || letter.is_ascii_lowercase())
        );
    }
}
