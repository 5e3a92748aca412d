//! A day of samples in bounded memory.

use lowtide_sensors::{Point, Recorder};
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};

fn recorder(series: usize) -> Recorder {
    Recorder::new((0..series).map(|index| format!("series {index}")).collect())
}

fn largest(points: impl Iterator<Item = f64>) -> f64 {
    points.fold(f64::NAN, f64::max)
}

#[test]
fn a_day_of_two_samples_a_second_stays_small_and_keeps_every_peak() {
    let mut recorder = recorder(16);
    let mut most = 0;
    let value = |index: u32| if index.is_multiple_of(7200) { 1e6 + f64::from(index) } else { f64::from(index % 100) };
    for index in 0..172_800 {
        recorder.push(f64::from(index) / 2.0, &[value(index); 16]);
        most = most.max(recorder.memory_bytes());
    }
    assert!(most < 1 << 20, "{most} bytes");
    assert!(recorder.len() < 3500, "{} points", recorder.len());
    let first = recorder.points().next().expect("points");
    assert!(first.time <= 60.0, "the first minute is there: {}", first.time);
    // One peak an hour, each kept at its value.
    let peaks: Vec<f64> = recorder.points().map(|point| point.values[3]).filter(|value| *value >= 1e6).collect();
    assert_eq!(peaks, (0..24).map(|hour| 1e6 + f64::from(hour * 7200)).collect::<Vec<f64>>());
}

#[test]
fn a_week_keeps_its_last_day_only() {
    let mut recorder = recorder(1);
    for second in 0..7 * 86_400 {
        recorder.push(f64::from(second), &[1.0]);
    }
    let first = recorder.points().next().expect("points").time;
    assert!((7.0 * 86_400.0 - first - 86_400.0).abs() <= 120.0, "{first}");
    assert!(recorder.len() < 3500, "{} points", recorder.len());
}

#[test]
fn the_last_minutes_are_as_they_came() {
    let mut recorder = recorder(1);
    for index in 0..4000 {
        recorder.push(f64::from(index) / 2.0, &[f64::from(index)]);
    }
    let fresh: Vec<&Point> = recorder.since(1399.5).collect();
    assert_eq!(fresh.len(), 1200);
    assert!(fresh.iter().all(|point| point.values[0] == point.time * 2.0));
    let next = recorder.points().filter(|point| point.time < 1390.0).last().expect("an older one");
    assert_eq!((next.time, next.values[0]), (1380.0, 1389.5 * 2.0), "the largest of its ten seconds");
}

#[test]
fn a_figure_that_is_missing_now_and_then_is_kept_where_it_is_there() {
    let mut recorder = recorder(3);
    recorder.push(0.0, &[f64::NAN, 5.0]);
    recorder.push(1.0, &[3.0, f64::NAN, f64::NAN, 9.0]);
    recorder.push(100_000.0, &[0.0; 3]);
    recorder.push(1000.0, &[1.0; 3]);
    recorder.push(f64::NAN, &[1.0; 3]);
    let times: Vec<f64> = recorder.points().map(|point| point.time).collect();
    assert_eq!(times, [100_000.0, 100_000.0], "too old, too late, no time");
    let mut recorder = self::recorder(3);
    recorder.push(0.0, &[f64::NAN, 5.0]);
    recorder.push(1.0, &[3.0, f64::NAN, f64::NAN, 9.0]);
    recorder.push(1000.0, &[0.0; 3]);
    let values = &recorder.points().next().expect("a span").values;
    assert_eq!((values[0], values[1]), (3.0, 5.0));
    assert!(values[2].is_nan());
}

#[test]
fn samples_that_come_too_fast_are_thinned_too() {
    let mut recorder = recorder(1);
    for index in 0..300_000 {
        recorder.push(f64::from(index) / 1000.0, &[f64::from(index)]);
    }
    assert!(recorder.len() < 5000, "{}", recorder.len());
    assert_eq!(largest(recorder.points().map(|point| point.values[0])), 299_999.0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn points_are_in_order_and_the_largest_of_a_day_is_kept(
        steps in proptest::collection::vec((0.0..400.0_f64, any::<u16>()), 1..200),
    ) {
        let mut recorder = recorder(1);
        let mut time = 0.0;
        let mut peak = f64::NAN;
        for (step, value) in steps {
            time += step;
            recorder.push(time, &[f64::from(value)]);
            peak = peak.max(f64::from(value));
        }
        prop_assert!(time < 86_400.0);
        prop_assert_eq!(largest(recorder.points().map(|point| point.values[0])), peak);
        prop_assert!(recorder.points().zip(recorder.points().skip(1)).all(|(one, next)| one.time <= next.time));
    }
}
