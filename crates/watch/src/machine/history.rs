//! Figures of the machine over time, in a bounded number of points.
//!
//! Samples lie on the clock of the run. Events have no time of day; the last one was written when its file was, which
//! joins the two clocks. What the engine notes every ten seconds and what is sampled meanwhile make one curve.

use lowtide_core::Bytes;

/// The most moments that are kept.
pub const MOMENTS: usize = 2048;

/// Some samples in a row as one moment: each figure is the largest of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Moment {
    /// Seconds on the clock of whose history it is, at the last sample.
    pub time: f64,
    /// The samples in it.
    pub samples: u64,
    /// The step that was under way or just done, where it was noted.
    pub step: Option<u64>,
    /// One figure for each name, as far as names were known; `None` where no sample had it.
    values: Vec<Option<Bytes>>,
}

/// Samples of the machine, thinned evenly as they get more.
#[derive(Debug, Clone, Default)]
pub struct History {
    names: Vec<String>,
    moments: Vec<Moment>,
    /// How often neighbours were made one; each moment holds two to the power of this many samples.
    halvings: u32,
}

impl History {
    /// Adds figures of a moment; those without a value are left out of it.
    pub fn push(&mut self, time: f64, figures: &[(&str, Option<u64>)]) {
        let mut values = vec![None; self.names.len()];
        for (name, value) in figures {
            match self.names.iter().position(|known| known == name) {
                Some(at) => values[at] = value.map(Bytes),
                None => {
                    self.names.push((*name).to_owned());
                    values.push(value.map(Bytes));
                }
            }
        }
        // A clock that was set back draws no loops.
        let time = self.moments.last().map_or(time, |last| last.time.max(time));
        let moment = Moment { time, samples: 1, step: None, values };
        let full = 1u64 << self.halvings;
        match self.moments.last_mut() {
            Some(last) if last.samples < full => last.join(&moment),
            _ => self.moments.push(moment),
        }
        if self.moments.len() > MOMENTS {
            self.moments = self.moments.chunks(2).map(joined).collect();
            self.halvings += 1;
        }
    }

    /// Notes the step of the last moment.
    pub fn note_step(&mut self, step: u64) {
        if let Some(last) = self.moments.last_mut() {
            last.step = Some(step);
        }
    }

    /// The names of the figures.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// A figure of these moments, by the place of its name.
    pub(crate) fn column<'a>(moments: &'a [Moment], at: usize) -> impl Iterator<Item = Option<Bytes>> + 'a {
        moments.iter().map(move |moment| moment.values.get(at).copied().flatten())
    }

    /// All moments, in the order of time. Only the last one changes, as long as [`History::halvings`] stays.
    #[must_use]
    pub fn moments(&self) -> &[Moment] {
        &self.moments
    }

    /// Grows whenever earlier moments change.
    #[must_use]
    pub fn halvings(&self) -> u32 {
        self.halvings
    }

    /// The largest value that a figure ever had.
    #[must_use]
    pub fn highest(&self, name: &str) -> Option<Bytes> {
        self.curve(name).map(|(_, value)| value).max()
    }

    /// The values of a figure over time, where it is known.
    pub fn curve(&self, name: &str) -> impl Iterator<Item = (f64, Bytes)> {
        // No moment has a figure at this place.
        let at = self.names.iter().position(|known| known == name).unwrap_or(usize::MAX);
        let values = History::column(&self.moments, at);
        self.moments.iter().zip(values).filter_map(|(moment, value)| Some((moment.time, value?)))
    }
}

impl Moment {
    /// Takes the moment after it in.
    fn join(&mut self, next: &Moment) {
        self.time = next.time;
        self.samples += next.samples;
        self.step = next.step.or(self.step);
        self.values.resize(self.values.len().max(next.values.len()), None);
        for (value, other) in self.values.iter_mut().zip(&next.values) {
            // Something is more than nothing.
            *value = (*value).max(*other);
        }
    }
}

fn joined(moments: &[Moment]) -> Moment {
    let mut whole = moments[0].clone();
    moments[1..].iter().for_each(|next| whole.join(next));
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(used: Option<u64>) -> [(&'static str, Option<u64>); 2] {
        [("used", used), ("other", None)]
    }

    #[test]
    fn a_day_is_bounded_and_no_peak_is_lost() {
        let mut history = History::default();
        let samples = 24 * 3600 * 2;
        for sample in 0..samples {
            let used = if sample == 70_001 { 999 } else { 100 + sample % 7 };
            history.push(sample as f64 / 2.0, &figures(Some(used)));
        }
        let moments = history.moments();
        assert!(moments.len() <= MOMENTS && moments.len() > MOMENTS / 4, "{}", moments.len());
        assert_eq!(moments.iter().map(|moment| moment.samples).sum::<u64>(), samples);
        assert!(moments.is_sorted_by(|a, b| a.time < b.time));
        assert_eq!(history.curve("used").filter(|(_, value)| *value == Bytes(999)).count(), 1);
        assert_eq!((history.highest("used"), history.highest("other")), (Some(Bytes(999)), None));
        assert_eq!(history.curve("absent").count(), 0);
    }

    #[test]
    fn a_figure_that_is_there_now_and_then_is_kept_and_time_never_runs_back() {
        let mut history = History::default();
        for (time, used) in [(1.0, None), (0.5, Some(7)), (2.0, None)] {
            history.push(time, &figures(used));
        }
        assert_eq!(history.curve("used").collect::<Vec<_>>(), [(1.0, Bytes(7))]);
    }

    #[test]
    fn names_may_come_later_and_in_another_order() {
        let mut history = History::default();
        for time in 0..MOMENTS as u64 {
            history.push(time as f64, &[("a", Some(time))]);
        }
        history.push(5000.0, &[("b", Some(1)), ("a", Some(2))]);
        history.push(5001.0, &[("b", Some(3))]);
        assert_eq!((history.halvings(), history.names()), (1, &["a".to_owned(), "b".to_owned()][..]));
        assert_eq!(history.curve("b").collect::<Vec<_>>(), [(5001.0, Bytes(3))]);
        assert_eq!(history.curve("a").last(), Some((5001.0, Bytes(2))));
        assert_eq!(history.highest("a"), Some(Bytes(MOMENTS as u64 - 1)));
    }
}
