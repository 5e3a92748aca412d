//! Marks above a chart: those that pile up are one, with a count.

use lowtide_core::EventKind;

use super::drawing::{Anchor, Paint, Pen, Shape};
use crate::runs::Mark;

/// Marks that begin nearer to each other than this are one.
const NEAR: f64 = 16.0;
/// What is drawn, the most important kind first.
const KINDS: [(EventKind, u32); 4] = [
    (EventKind::OutOfMemory, 0xdc2626),
    (EventKind::Overflowed, 0xc2710c),
    (EventKind::Rung, 0xc2710c),
    (EventKind::Cleaned, 0x15803d),
];

/// Marks in one place: of each kind all as one.
struct Pile {
    x: f64,
    by_kind: [Option<Mark>; KINDS.len()],
}

/// Failures, retries and cleanings as heads above a chart, with stems down to its bottom; `edges` are its top and bottom.
pub(super) fn rail(marks: &[Mark], x: &impl Fn(f64) -> f64, edges: (f64, f64)) -> Vec<Shape> {
    piles(marks, x).iter().map(|pile| drawn(pile, edges)).collect()
}

fn piles(marks: &[Mark], x: &impl Fn(f64) -> f64) -> Vec<Pile> {
    let mut piles: Vec<Pile> = Vec::new();
    for mark in marks {
        let Some(kind) = KINDS.iter().position(|(kind, _)| *kind == mark.kind) else { continue };
        let place = x(mark.time);
        if piles.last().is_none_or(|pile| place - pile.x >= NEAR) {
            piles.push(Pile { x: place, by_kind: [const { None }; KINDS.len()] });
        }
        let Some(pile) = piles.last_mut() else { continue };
        let slot = &mut pile.by_kind[kind];
        *slot = Some(match slot.take() {
            Some(before) => before.and(mark.clone()),
            None => mark.clone(),
        });
    }
    piles
}

fn drawn(pile: &Pile, (top, bottom): (f64, f64)) -> Shape {
    let x = pile.x;
    let mut kinds = pile.by_kind.iter().zip(KINDS).filter_map(|(mark, (_, colour))| Some((mark.as_ref()?, colour)));
    let title: Vec<String> = pile.by_kind.iter().flatten().map(Mark::sentence).collect();
    let (mark, colour) = kinds.next().expect("no pile is empty");
    let paint = Paint::solid(colour);
    let pieces = vec![vec![(x, bottom), (x, top - 6.0)]];
    let stem = Shape::Curve { pieces, paint: Paint { opacity: 0.5, ..paint }, pen: Pen::solid(1.0) };
    let mut shapes = vec![stem];
    match (mark.count, mark.kind) {
        (1, EventKind::OutOfMemory) => {
            shapes.push(Shape::Area {
                corners: vec![(x, top - 5.0), (x - 6.0, top - 16.0), (x + 6.0, top - 16.0)],
                paint,
            });
        }
        (1, _) => shapes.push(Shape::Circle { centre: (x, top - 10.0), radius: 3.5, paint }),
        (count, _) => {
            let text = short_count(count);
            // Wide enough for two digits; more of them make a wider one.
            let half = 7.0_f64.max(3.0 * text.len() as f64);
            for shift in [7.0 - half, half - 7.0] {
                shapes.push(Shape::Circle { centre: (x + shift, top - 11.0), radius: 7.0, paint });
            }
            let (corner, width) = ((x + 7.0 - half, top - 18.0), 2.0 * half - 14.0);
            if width > 0.0 {
                shapes.push(Shape::Rectangle { corner, width, height: 14.0, paint });
            }
            let (place, size, white) = ((x, top - 7.5), 10.0, Paint::solid(0xffffff));
            shapes.push(Shape::Text { place, anchor: Anchor::Middle, size, paint: white, text });
        }
    }
    Shape::Group { title: title.join(" "), shapes }
}

/// A count in a few letters: `12`, `3k`.
fn short_count(count: u64) -> String {
    match count {
        ..1000 => count.to_string(),
        _ => format!("{}k", count / 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_core::Step;

    fn mark(kind: EventKind, time: f64) -> Mark {
        let step = Step(time as u64);
        let (seconds, loss, reserved, detail) = (0.0, None, None, None);
        Mark { kind, time, seconds, step, first_step: step, count: 1, loss, reserved, text: "It.".to_owned(), detail }
    }

    #[test]
    fn marks_that_pile_up_are_one_with_a_count() {
        let times = [1.0, 2.0, 3.0, 30.0, 31.0, 90.0];
        let mut marks: Vec<Mark> = times.map(|time| mark(EventKind::OutOfMemory, time)).into();
        marks.insert(1, mark(EventKind::Rung, 1.5));
        marks.push(mark(EventKind::Saved, 95.0));
        let piles = piles(&marks, &|time| time);
        let counts: Vec<(f64, [u64; KINDS.len()])> = piles
            .iter()
            .map(|pile| (pile.x, pile.by_kind.each_ref().map(|mark| mark.as_ref().map_or(0, |mark| mark.count))))
            .collect();
        assert_eq!(counts, [(1.0, [3, 0, 1, 0]), (30.0, [2, 0, 0, 0]), (90.0, [1, 0, 0, 0])]);
        let Shape::Group { title, shapes } = drawn(&piles[0], (64.0, 300.0)) else { panic!("a group") };
        assert_eq!(title, "3 times out of memory from step 1 to 3; the last: It. It.");
        assert!(shapes.iter().any(|shape| matches!(shape, Shape::Text { text, .. } if text == "3")), "{shapes:?}");
    }

    #[test]
    fn large_counts_are_short() {
        assert_eq!([2, 999, 1000, 50_499].map(short_count), ["2", "999", "1k", "50k"]);
    }
}
