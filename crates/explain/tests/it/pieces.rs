//! How sure pieces are the matter, over sweeps of figures: more that is idle never speaks for need, nor a larger request for pieces.

use lowtide_explain::{Cause, Context, explain};

const MIB: u64 = 1;
const GIB: u64 = 1024 * MIB;
/// A context of this process, and all that is nobody's.
const CONTEXT: u64 = GIB / 2;

/// The figures of a message, in MiB.
#[derive(Debug, Clone, Copy)]
struct Figures {
    tried: u64,
    allocated: u64,
    idle: u64,
    free: u64,
    capacity: u64,
}

/// How the message is written.
#[derive(Debug, Clone, Copy)]
enum Form {
    Parentheses,
    Sentences,
}

/// How sure need is, and how sure pieces are; nothing for whatever else it may be.
fn sureness(figures: Figures, form: Form) -> (f64, f64) {
    let Figures { tried, allocated, idle, free, capacity } = figures;
    let reserved = allocated + idle;
    let log = match form {
        Form::Parentheses => format!(
            "CUDA out of memory. Tried to allocate {tried}.00 MiB (GPU 0; {capacity}.00 MiB total capacity; {allocated}.00 MiB already \
             allocated; {free}.00 MiB free; {reserved}.00 MiB reserved in total by PyTorch)\n"
        ),
        Form::Sentences => format!(
            "CUDA out of memory. Tried to allocate {tried}.00 MiB. GPU 0 has a total capacity of {capacity}.00 MiB of which {free}.00 MiB \
             is free. Including non-PyTorch memory, this process has {}.00 MiB memory in use. Of the allocated memory {allocated}.00 MiB \
             is allocated by PyTorch, and {idle}.00 MiB is reserved by PyTorch but unallocated.\n",
            reserved + CONTEXT
        ),
    };
    let verdict = &explain(log.as_bytes(), &Context::default())[0];
    let sure = |cause: Cause| if verdict.cause == cause { verdict.certainty } else { 0.0 };
    (sure(Cause::Need), sure(Cause::Fragmentation))
}

const FORMS: [Form; 2] = [Form::Parentheses, Form::Sentences];
const ALLOCATED: [u64; 4] = [2 * GIB, 9 * GIB, 20 * GIB, 70 * GIB];
const TRIED: [u64; 6] = [20, 128, 700, 2 * GIB, 5 * GIB, 11 * GIB];

/// Sizes from little to much.
fn sizes() -> impl Iterator<Item = u64> + Clone {
    [1, 8, 40, 100, 200, 400].into_iter().chain((1..28).map(|half| half * GIB / 2 + 13))
}

#[test]
fn more_that_is_idle_speaks_for_pieces() {
    for form in FORMS {
        for (allocated, tried, free) in ALLOCATED.into_iter().flat_map(|allocated| {
            TRIED.into_iter().flat_map(move |tried| [1, 60, 500, 2 * GIB].map(|free| (allocated, tried, free)))
        }) {
            let of = |idle: u64| Figures { tried, allocated, idle, free, capacity: allocated + idle + free + CONTEXT };
            check(sizes().map(of), form);
        }
    }
}

#[test]
fn what_is_idle_in_place_of_free_speaks_for_pieces() {
    for form in FORMS {
        for allocated in ALLOCATED {
            for tried in TRIED {
                let room = 14 * GIB;
                // What is free is too little by itself.
                let of = |idle: u64| Figures {
                    tried,
                    allocated,
                    idle,
                    free: room - idle,
                    capacity: allocated + room + CONTEXT,
                };
                check(sizes().map(of).filter(|figures| figures.free < tried), form);
            }
        }
    }
}

/// Of figures in order of what is idle, none is surer of need or less sure of pieces than the one before.
#[track_caller]
fn check(sweep: impl Iterator<Item = Figures>, form: Form) {
    let mut before: Option<(Figures, (f64, f64))> = None;
    for figures in sweep {
        let now = sureness(figures, form);
        if let Some((last, (need, pieces))) = before {
            assert!(now.0 <= need && now.1 >= pieces, "{form:?}: {last:?} {need} {pieces}, then {figures:?} {now:?}");
        }
        before = Some((figures, now));
    }
}

#[test]
fn a_request_above_what_is_idle_makes_pieces_no_surer() {
    for form in FORMS {
        for allocated in ALLOCATED {
            for (idle, free) in sizes().flat_map(|idle| [1, 60, 500, 2 * GIB].map(|free| (idle, free))) {
                let capacity = allocated + idle + free + CONTEXT;
                let mut before = f64::MAX;
                // What is free holds a smaller one by itself.
                for tried in sizes().filter(|tried| *tried > idle.max(free)) {
                    let figures = Figures { tried, allocated, idle, free, capacity };
                    let (_, pieces) = sureness(figures, form);
                    assert!(pieces <= before, "{form:?}: {before}, then {figures:?} {pieces}");
                    before = pieces;
                }
            }
        }
    }
}
