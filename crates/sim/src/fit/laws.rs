//! The laws of all requests of a recording.

use std::collections::HashMap;

use super::law::{Estimate, Polynomial, Use, estimate};
use super::multiprocessors::Multiprocessors;
use super::pairing::{Pairing, partners};
use super::program::{Request, SizedRecording};
use super::reduction::{Reduction, seen};
use super::sizes::Form;
use super::sums::sums;
use crate::{SimError, Source};

/// Sizes and bytes of a request, by size.
pub(super) type Points = Vec<(u64, u64)>;

/// What makes requests of one recording kin: their size, and who asked.
type Key = (u64, u32, Option<u64>);

/// How many requests and frees a workspace lives at most.
const WORKSPACE: u32 = 4;

/// The laws of a recording's requests.
#[derive(Debug, Clone)]
pub(super) struct Laws {
    pub(super) requests: Vec<Law>,
    /// Sums that have no buffer yet, by the request of their outputs.
    pub(super) sums: HashMap<usize, Reduction>,
    pub(super) pairing: Pairing,
}

/// The law of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Law {
    Polynomial(Estimate<Polynomial>),
    Buffer(Reduction),
}

impl Law {
    fn narrow(&mut self) {
        if let Self::Polynomial(estimate) = self {
            *estimate = estimate.narrowed();
        }
    }

    /// The bytes at a size.
    pub(super) fn at(&self, size: u64, form: Form, multiprocessors: u64, site: u64) -> u64 {
        match self {
            Self::Polynomial(estimate) => estimate.at(size, form, site),
            // Without a buffer it is next to nothing.
            Self::Buffer(sum) => sum.buffer(size, multiprocessors).unwrap_or(1),
        }
    }
}

/// The laws of one recording's requests, by what the others have for the same.
pub(super) fn laws_of(recorded: &[SizedRecording], index: usize) -> Result<Laws, SimError> {
    let base = &recorded[index];
    let points = points(recorded, index)?;
    // Sums over many rows are cut among the blocks of a card; a CPU has none.
    let is_card = base.source() == Source::CachingAllocator;
    let sums = if is_card { sums(base, &points) } else { HashMap::new() };
    let kin = kin(base, &points);
    let mut pairing = Pairing { requests: points.len(), ..Pairing::default() };
    let mut laws = Vec::with_capacity(points.len());
    for (at, own) in points.iter().enumerate() {
        if is_card && let Some(sum) = buffer(base, at, own, &sums) {
            laws.push(Law::Buffer(sum));
            continue;
        }
        if at > 0 && matches!(laws[at - 1], Law::Buffer(_)) {
            // The flags of its blocks.
            laws.push(Law::Polynomial(Estimate::certain(Polynomial::constant(base.requests[at].bytes))));
            continue;
        }
        let known = match own.len() {
            1 => kin.get(&key(&base.requests[at])).and_then(Option::as_ref).unwrap_or(own),
            _ => own,
        };
        let law = estimate(known, used_as(&base.requests[at]));
        pairing.unpaired += usize::from(known.len() == 1);
        pairing.undecided += usize::from(known.len() > 1 && law.low != law.high);
        pairing.jumping += usize::from(known.len() > 1 && law.jumps());
        laws.push(Law::Polynomial(law));
    }
    // Where no kernel was changed, the others are what they seem.
    if pairing.unpaired + pairing.jumping == 0 {
        laws.iter_mut().for_each(Law::narrow);
    }
    pairing.paired = pairing.requests - pairing.unpaired;
    // One that had no buffer where it should have had one is none.
    let is_new = |sum: &Reduction| sum.buffer(base.size, Multiprocessors::MOST).is_none();
    let sums = sums.into_iter().filter(|(_, sum)| is_new(sum)).collect();
    Ok(Laws { requests: laws, sums, pairing })
}

/// The sizes of each request of a recording in all of them.
fn points(recorded: &[SizedRecording], index: usize) -> Result<Vec<Points>, SimError> {
    let base = &recorded[index];
    let mut points: Vec<Points> = base.requests.iter().map(|request| vec![(base.size, request.bytes)]).collect();
    for other in recorded.iter().filter(|other| other.size != base.size) {
        for (own, partner) in points.iter_mut().zip(partners(base, other)?) {
            own.extend(partner.map(|partner| (other.size, other.requests[partner].bytes)));
        }
    }
    points.iter_mut().for_each(|own| own.sort_unstable());
    Ok(points)
}

/// The law of a sum's buffer: by the smallest size that it was seen at, since a larger one may have all blocks already, and to the row where
/// its rows are known.
fn buffer(base: &SizedRecording, at: usize, points: &Points, sums: &HashMap<usize, Reduction>) -> Option<Reduction> {
    let seen = seen(&base.requests, at)?;
    let least = points.iter().find_map(|(size, bytes)| seen.blocks_of(*bytes).map(|blocks| (*size, blocks)));
    let (size, blocks) = least.unwrap_or((base.size, seen.blocks));
    let law = seen.growing(size, blocks);
    let own = sums.get(&(at - 1)).filter(|sum| seen.blocks_for(sum, base.size) == seen.blocks);
    Some(own.copied().unwrap_or(law))
}

/// What goes before much else happens is a library's own.
pub(super) const fn used_as(request: &Request) -> Use {
    if request.death - request.birth <= WORKSPACE { Use::Workspace } else { Use::Tensor }
}

const fn key(request: &Request) -> Key {
    (request.bytes, request.stream, request.stack)
}

/// The sizes of requests that are paired, by what makes them kin; none where kin differ.
fn kin(base: &SizedRecording, points: &[Points]) -> HashMap<Key, Option<Points>> {
    let mut kin: HashMap<Key, Option<Points>> = HashMap::new();
    for (request, points) in base.requests.iter().zip(points).filter(|(_, points)| points.len() > 1) {
        let known = kin.entry(key(request)).or_insert_with(|| Some(points.clone()));
        if known.as_ref() != Some(points) {
            *known = None;
        }
    }
    kin
}
