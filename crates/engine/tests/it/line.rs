//! Runs under a memory line.

use insta::assert_snapshot;
use lowtide_core::{Event, Phase, Rung};

use crate::kit::{Place, settled};

fn rungs(place: &Place, out: &str) -> Vec<Rung> {
    let rung = |event| match event {
        Event::RungTaken { rung, .. } => Some(rung),
        _ => None,
    };
    place.events(out).into_iter().filter_map(rung).collect()
}

fn figure(place: &Place, out: &str, key: &str) -> u64 {
    place.summary(out)[key].as_u64().unwrap()
}

/// Parameters, gradients and two moments.
fn at_rest(place: &Place, out: &str) -> u64 {
    16 * figure(place, out, "parameters")
}

#[test]
fn a_line_splits_the_batch_and_keeps_the_numbers() {
    let place = Place::new();
    // Dropout draws other numbers for other micro-batches.
    place.train("free", "--set model.dropout=0");
    let line = figure(&place, "free", "peak_allocated_bytes") * 3 / 4;
    place.train("held", &format!("--set model.dropout=0 --limit {line} --set train.micro_batch=8"));
    place.train("chosen", &format!("--set model.dropout=0 --limit {line}"));

    assert_eq!(rungs(&place, "held")[..2], [Rung::Clean, Rung::Split]);
    assert_eq!(rungs(&place, "chosen"), [], "the micro-batch was foreseen to fit");
    // A try that failed has its own peak, and that of its step is as if there had been none.
    let events = place.events("held");
    let tried = |event: &Event| matches!(event, Event::OutOfMemory { peak: Some(_), reserved: Some(_), .. });
    assert!(events.iter().any(tried));
    let peaks = |out| {
        let step = |event| if let Event::StepDone { peak, .. } = event { Some(peak) } else { None };
        place.events(out).into_iter().filter_map(step).collect::<Vec<_>>()
    };
    assert_eq!(peaks("held")[0], peaks("held")[1]);
    for out in ["held", "chosen"] {
        assert!(figure(&place, out, "micro_batch_final") < 8);
        assert!(figure(&place, out, "peak_allocated_bytes") <= line);
        assert_eq!(figure(&place, out, "oom_recovered"), figure(&place, out, "oom_errors"));
        assert_eq!((figure(&place, out, "samples_seen"), figure(&place, out, "samples_lost")), (32, 0));
        let loss = |out| place.summary(out)["final_loss"].as_f64().unwrap();
        assert!((loss("free") - loss(out)).abs() < 1e-4, "{} and {}", loss("free"), loss(out));
    }
}

#[test]
fn an_evaluation_before_the_first_step_that_does_not_fit_is_cut_into_pieces() {
    let place = Place::new();
    let settings = "--set eval.at_start=true --set train.micro_batch=64 --set train.batch=64 --set train.steps=2";
    place.train("free", settings);
    let at_start = place.events("free").into_iter().find_map(|event| match event {
        Event::Evaluated { loss, .. } => Some(loss),
        _ => None,
    });
    let line = at_rest(&place, "free") + 350_000;
    place.train("held", &format!("{settings} --limit {line}"));
    let failed =
        |event: &Event| matches!(event, Event::OutOfMemory { step, phase: Phase::Eval, .. } if step.get() == 0);
    let events = place.events("held");
    assert!(events.iter().any(failed), "the whole batch does not fit");
    let held = events.iter().find_map(|event| match event {
        Event::Evaluated { loss, .. } => Some(*loss),
        _ => None,
    });
    assert!((held.unwrap() - at_start.unwrap()).abs() < 1e-5);
    assert_eq!(figure(&place, "held", "samples_lost"), 0);
}

#[test]
fn where_a_batch_cannot_be_split_recompute_helps() {
    let place = Place::new();
    let one = "--set train.batch=1 --set model.n_layer=4 --set model.block_size=64 --set eval.every=null";
    place.train("free", one);
    place.train("recomputed", &format!("{one} --set train.recompute=on"));
    let (most, least) =
        (figure(&place, "free", "peak_allocated_bytes"), figure(&place, "recomputed", "peak_allocated_bytes"));
    let line = least + (most - least) / 4;
    place.train("held", &format!("{one} --limit {line}"));
    let rungs = rungs(&place, "held");
    assert!(rungs.contains(&Rung::Recompute) && !rungs.contains(&Rung::Split), "{rungs:?}");
    assert_eq!(place.hash("recomputed"), place.hash("free"), "recompute draws the same dropout again");
    place.train("again", &format!("{one} --schedule-from held"));
    assert_eq!(place.hash("again"), place.hash("held"));
}

#[test]
fn where_nothing_fits_the_state_is_saved_and_a_larger_line_goes_on() {
    let place = Place::new();
    place.train("free", "");
    let line = at_rest(&place, "free") + 16_384;
    let whole = "--set train.micro_batch=8";
    let ran = place.ends(3, &format!("train tiny.yaml --device cpu --out out --limit {line} {whole}"));
    let stop = ran.stderr.find("stopped at the memory limit").unwrap();
    assert_snapshot!(settled(&ran.stderr[stop..]).replace("backward", "PHASE").replace("forward", "PHASE"), @r"
    stopped at the memory limit
      steps         0 (0 samples, none lost)
      memory        peak SIZE (limit SIZE)
      out of memory 11 times, 0 recovered
      time          # s
    error: memory ran out in PHASE of step 1, and nothing that is allowed is left to try
      tried: clean (micro-batch 8)
      tried: split (micro-batch 4)
      tried: split (micro-batch 2)
      tried: split (micro-batch 1)
      tried: chunk the loss (micro-batch 1, loss in 2 chunks)
      tried: chunk the loss (micro-batch 1, loss in 4 chunks)
      tried: chunk the loss (micro-batch 1, loss in 8 chunks)
      tried: chunk the loss (micro-batch 1, loss in 16 chunks)
      tried: recompute (micro-batch 1, loss in 16 chunks, recompute level 1)
      tried: recompute (micro-batch 1, loss in 16 chunks, recompute level 2)
      the last try came SIZE past the limit, and may have needed more after that
    hint: resume with a larger limit: lowtide train --resume --out out --limit SIZE
    everything about this run is in out
    ");
    assert_eq!(place.names("out/checkpoints"), ["00000000"].map(String::from).into());
    assert_eq!(place.summary("out")["stopped"], "line");
    assert_eq!(figure(&place, "out", "oom_recovered"), 0);

    place.resume("out", "--limit none");
    assert_eq!(place.hash("out"), place.hash("free"), "with room, nothing is left of what was tried");
}
