//! Which requests are the outputs of sums over rows, by what stands around them.

use std::collections::{BTreeSet, HashMap};

use super::law::Use;
use super::laws::{Points, used_as};
use super::multiprocessors::Multiprocessors;
use super::program::{Request, SizedRecording};
use super::reduction::{Reduction, bias, of_gradient, seen};

/// How many requests a gradient lives on at most once it is summed: it goes as soon as its layer is done, and what the forward pass keeps stays.
const SOON: usize = 8;
/// How far before its bias the gradient of a weight is asked for.
const NEAR: usize = 3;

/// The sums of rows that are gradients of biases, by the request of their outputs.
pub(super) fn sums(base: &SizedRecording, points: &[Points]) -> HashMap<usize, Reduction> {
    let requests = &base.requests;
    let grows = |at: usize| points[at].len() > 1 && points[at][0].1 < points[at][points[at].len() - 1].1;
    let mut live: BTreeSet<(u64, u32)> = BTreeSet::new();
    let mut by_death: BTreeSet<(u32, usize)> = BTreeSet::new();
    let mut sums = HashMap::new();
    let mut gradients = HashMap::new();
    for (at, request) in requests.iter().enumerate() {
        while by_death.first().is_some_and(|(death, _)| *death < request.birth) {
            by_death.pop_first();
        }
        let soon = requests.get(at + SOON).map_or(u32::MAX, |later| later.birth);
        if !grows(at) && !is_pair(requests, at) {
            let goes = |bytes: u64| live.range((bytes, request.birth)..(bytes, soon)).next().is_some();
            sums.extend(bias(requests, at, base.size, goes, grows).map(|sum| (at, sum)));
            let is_tensor = used_as(request) == Use::Tensor;
            let first = by_death.first().filter(|(death, _)| *death < soon).map(|(_, one)| requests[*one].bytes);
            let has_weight =
                |bytes: u64| bytes.is_multiple_of(request.bytes) && is_tensor && has_weight(requests, at, grows);
            gradients.extend(first.filter(|bytes| has_weight(*bytes)).map(|bytes| (at, bytes)));
        }
        live.insert((request.bytes, request.death));
        if grows(at) && used_as(request) == Use::Tensor {
            by_death.insert((request.death, at));
        }
    }
    // What the recording itself confirms is better than what its matrices suggest.
    sums.extend(confirmed(base, &gradients));
    sums
}

/// Two of one size are the scale and the shift of a normalization.
fn is_pair(requests: &[Request], at: usize) -> bool {
    let bytes = requests[at].bytes;
    let is_same = |other: Option<&Request>| other.is_some_and(|other| other.bytes == bytes);
    is_same(requests.get(at + 1)) || at > 0 && is_same(requests.get(at - 1))
}

/// Whether the last tensor before it may be the gradient of its layer's weight.
fn has_weight(requests: &[Request], at: usize, grows: impl Fn(usize) -> bool) -> bool {
    let outputs = requests[at].bytes;
    let before = (at.saturating_sub(NEAR)..at).rev().find(|one| used_as(&requests[*one]) == Use::Tensor);
    before.is_some_and(|one| {
        let weight = requests[one].bytes;
        weight > outputs && weight.is_multiple_of(outputs) && !grows(one)
    })
}

/// The sums of gradients, by outputs and gradient, where those that have a buffer in the recording show that they are such sums: whether the
/// rows of a convolution lie one after another is up to its memory format.
fn confirmed(base: &SizedRecording, gradients: &HashMap<usize, u64>) -> Vec<(usize, Reduction)> {
    let sums = |width: u64| -> Vec<(usize, Reduction)> {
        let sum = |(at, gradient): (&usize, &u64)| {
            Some((*at, of_gradient(*gradient, base.requests[*at].bytes, width, base.size)?))
        };
        gradients.iter().filter_map(sum).collect()
    };
    let evidence = |sums: &[(usize, Reduction)]| {
        let (mut right, mut wrong) = (0, 0);
        for (at, sum) in sums {
            let own = seen(&base.requests, at + 1);
            match (sum.buffer(base.size, Multiprocessors::MOST), own) {
                (None, None) => {}
                (Some(_), Some(own)) if own.blocks <= own.blocks_for(sum, base.size) => right += 1,
                _ => wrong += 1,
            }
        }
        (right > wrong).then_some(right)
    };
    let all = [4, 2].map(sums).into_iter().filter_map(|sums| Some((evidence(&sums)?, sums)));
    all.max_by_key(|(right, _)| *right).map(|(_, sums)| sums).unwrap_or_default()
}
