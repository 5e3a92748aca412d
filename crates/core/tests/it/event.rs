//! The lines of `events.jsonl`, as they are written and read.

use std::num::NonZeroU32;

use lowtide_core::{
    Bytes, Ending, Event, Line, Measures, Metrics, Phase, Reason, Record, Rung, RungAttempt, Step, Stop, StopCause,
};

use crate::kit::micro_batch;

fn measures() -> Measures {
    let mut measures = Measures::new(micro_batch(4), micro_batch(2));
    measures.loss_chunks = NonZeroU32::new(8).expect("not 0");
    measures
}

/// Compares the written line with `expect` (less its schema and time), and reads it back.
#[track_caller]
fn check(event: Event, expect: &str) {
    let record = Record::new(1.5, event);
    let line = serde_json::to_string(&record).expect("an event can be written");
    assert_eq!(line, format!(r#"{{"schema":1,"time":1.5,{expect}}}"#));
    assert_eq!(serde_json::from_str::<Record>(&line).expect("its own line"), record);
}

const MEASURES: &str = r#""measures":{"micro_batch":4,"loss_chunks":8,"recompute":0,"spill":0,"narrow":false,"eval_micro_batch":2,"eval_loss_chunks":1}"#;

#[test]
fn a_run_that_goes_on() {
    let event = Event::RunStarted {
        workload: "gpt".into(),
        device: "cuda:0".into(),
        seed: u64::MAX,
        batch: 64,
        micro_batch: micro_batch(16),
        line: Line::at(Bytes::from_gib(8)).expect("not 0"),
        host_line: Line::NONE,
        parameters: 124_000_000,
        resumed_at: Some(Step(7)),
        numerics: None,
    };
    let expect = r#""event":"run_started","workload":"gpt","device":"cuda:0","seed":18446744073709551615,"batch":64,"micro_batch":16,"line":8589934592,"host_line":null,"parameters":124000000,"resumed_at":7"#;
    check(event, expect);
}

fn step(loss: f64) -> Event {
    Event::StepDone {
        step: Step(3),
        loss,
        learning_rate: 0.001,
        samples: 64,
        tokens: Some(65_536),
        seconds: 0.25,
        allocated: Bytes(10),
        peak: Bytes(30),
        reserved: Bytes(40),
        micro_batch: micro_batch(16),
    }
}

#[test]
fn a_step() {
    let expect = r#""event":"step","step":3,"loss":2.5,"learning_rate":0.001,"samples":64,"tokens":65536,"seconds":0.25,"allocated":10,"peak":30,"reserved":40,"micro_batch":16"#;
    check(step(2.5), expect);
}

#[test]
fn a_loss_that_is_no_number_can_be_read_back() {
    for loss in [f64::NAN, f64::INFINITY] {
        let line = serde_json::to_string(&Record::new(0.0, step(loss))).expect("an event can be written");
        assert!(line.contains(r#""loss":null"#), "{line}");
        let record: Record = serde_json::from_str(&line).expect("its own line");
        assert!(matches!(record.event, Event::StepDone { loss, .. } if loss.is_nan()));
    }
}

#[test]
fn an_error_and_its_answers() {
    let event = Event::OutOfMemory {
        step: Step(3),
        phase: Phase::Backward,
        requested: Some(Bytes(512)),
        limit: None,
        allocated: None,
        peak: Some(Bytes(700)),
        reserved: Some(Bytes(800)),
        message: "CUDA out of memory".into(),
    };
    let failed = r#""event":"out_of_memory","step":3,"phase":"backward","requested":512,"limit":null,"allocated":null"#;
    let message = r#""message":"CUDA out of memory""#;
    check(event.clone(), &format!(r#"{failed},"peak":700,"reserved":800,{message}"#));
    // As older runs wrote it.
    let Event::OutOfMemory { step, phase, requested, limit, allocated, message: text, .. } = event else { return };
    let (peak, reserved) = (None, None);
    let older = Event::OutOfMemory { step, phase, requested, limit, allocated, peak, reserved, message: text };
    check(older, &format!("{failed},{message}"));

    let reason = Reason::StillFailing { phase: Phase::Backward };
    let event = Event::RungTaken { step: Step(3), rung: Rung::Split, measures: measures(), reason };
    check(
        event,
        &format!(
            r#""event":"rung_taken","step":3,"rung":"split",{MEASURES},"reason":{{"why":"still_failing","phase":"backward"}}"#
        ),
    );

    let reason = Reason::Room { forecast: Bytes(5), limit: Some(Bytes(9)) };
    let event = Event::Climbed { step: Step(60), measures: measures(), reason };
    check(
        event,
        &format!(r#""event":"climbed","step":60,{MEASURES},"reason":{{"why":"room","forecast":5,"limit":9}}"#),
    );
}

#[test]
fn the_small_events() {
    check(
        Event::Cleaned { step: Step(1), freed: Bytes(2), seconds: 0.5 },
        r#""event":"cleaned","step":1,"freed":2,"seconds":0.5"#,
    );
    check(
        Event::Saved { step: Step(1), path: "checkpoints/1".into(), bytes: Bytes(9), seconds: 0.5 },
        r#""event":"saved","step":1,"path":"checkpoints/1","bytes":9,"seconds":0.5"#,
    );
    check(Event::Skipped { step: Step(1), scale: 32_768.0 }, r#""event":"skipped","step":1,"scale":32768.0"#);
}

fn metrics(pairs: &[(&str, f64)]) -> Metrics {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

fn evaluated(metrics: Metrics) -> Event {
    Event::Evaluated {
        step: Step(1),
        loss: 2.5,
        metrics,
        batches: 4,
        seconds: 0.5,
        allocated: Some(Bytes(10)),
        reserved: Some(Bytes(40)),
        approximate: false,
    }
}

#[test]
fn a_sample_of_memory_leaves_out_what_cannot_be_had() {
    let sample = |device: Option<Bytes>| Event::Memory {
        step: Step(3),
        allocated: Bytes(10),
        reserved: Bytes(40),
        retries: 2,
        device_used: device,
        device_total: device,
        resident: Bytes(7),
        host_used: device,
        host_total: device,
        reserve: device,
        worked: device.map(|_| 0.25),
        waited: device.map(|_| 0.5),
    };
    let start = r#""event":"memory","step":3,"allocated":10,"reserved":40,"retries":2,"#;
    check(sample(None), &format!(r#"{start}"resident":7"#));
    let all = r#""device_used":5,"device_total":5,"resident":7,"host_used":5,"host_total":5,"reserve":5,"worked":0.25,"waited":0.5"#;
    check(sample(Some(Bytes(5))), &format!("{start}{all}"));
}

#[test]
fn an_evaluation() {
    check(
        evaluated(Metrics::default()),
        r#""event":"evaluated","step":1,"loss":2.5,"batches":4,"seconds":0.5,"allocated":10,"reserved":40"#,
    );
    check(
        evaluated(metrics(&[("survival", 0.5), ("activity", 0.25)])),
        r#""event":"evaluated","step":1,"loss":2.5,"metrics":{"survival":0.5,"activity":0.25},"batches":4,"seconds":0.5,"allocated":10,"reserved":40"#,
    );
    let Event::Evaluated { step, loss, metrics, batches, seconds, allocated, reserved, .. } =
        evaluated(Metrics::default())
    else {
        unreachable!("it makes evaluations")
    };
    check(
        Event::Evaluated { step, loss, metrics, batches, seconds, allocated, reserved, approximate: true },
        r#""event":"evaluated","step":1,"loss":2.5,"batches":4,"seconds":0.5,"allocated":10,"reserved":40,"approximate":true"#,
    );
}

#[test]
fn an_early_end() {
    let event = |best| Event::StoppedEarly { step: Step(9), evaluations: 3, best };
    check(event(Some(0.5)), r#""event":"stopped_early","step":9,"evaluations":3,"best":0.5"#);
    check(event(None), r#""event":"stopped_early","step":9,"evaluations":3,"best":null"#);
}

#[test]
fn an_evaluation_of_an_older_run_can_be_read() {
    let line = r#"{"schema":1,"time":1.5,"event":"evaluated","step":1,"loss":2.5,"batches":4,"seconds":0.5}"#;
    let expect = Event::Evaluated {
        step: Step(1),
        loss: 2.5,
        metrics: Metrics::default(),
        batches: 4,
        seconds: 0.5,
        allocated: None,
        reserved: None,
        approximate: false,
    };
    assert_eq!(serde_json::from_str::<Record>(line).expect("an older line"), Record::new(1.5, expect));
}

#[test]
fn a_metric_that_is_no_number_can_be_read_back() {
    let event = evaluated(metrics(&[("survival", f64::INFINITY), ("activity", 0.25)]));
    let line = serde_json::to_string(&Record::new(0.0, event)).expect("an event can be written");
    assert!(line.contains(r#""metrics":{"survival":null,"activity":0.25}"#), "{line}");
    let Event::Evaluated { metrics, .. } = serde_json::from_str::<Record>(&line).expect("its own line").event else {
        panic!("{line}")
    };
    assert!(metrics.get("survival").expect("it is there").is_nan());
    assert_eq!((metrics.get("activity"), metrics.get("symmetry")), (Some(0.25), None));
}

#[test]
fn metrics_in_words() {
    assert_eq!(metrics(&[("survival", 0.051), ("activity", f64::NAN)]).to_string(), "survival 0.0510, activity NaN");
    assert_eq!(Metrics::default().to_string(), "");
}

#[test]
fn the_endings() {
    let stopped = |ending| Event::Stopped { step: Step(9), ending };
    check(stopped(Ending::Finished), r#""event":"stopped","step":9,"reason":"finished""#);
    check(stopped(Ending::Interrupted), r#""event":"stopped","step":9,"reason":"interrupted""#);
    check(
        stopped(Ending::Error { message: "disk full".into() }),
        r#""event":"stopped","step":9,"reason":"error","message":"disk full""#,
    );
    let stop = Stop {
        step: Step(10),
        phase: Phase::Forward,
        cause: StopCause::NoProgress { failures: 128, committed: 3 },
        measures: measures(),
        tried: vec![RungAttempt { phase: Phase::Forward, rung: Rung::Clean, measures: measures() }],
    };
    let tile = |smaller| Stop { cause: StopCause::TileTooLarge { tile: 512, smaller }, ..stop.clone() }.to_string();
    assert_eq!(
        tile(Some(256)),
        "memory ran out in forward of step 10, and a tile of 512 x 512 pixels does not fit: the next smaller is \
         eval.tile=256, and eval.tile=auto finds the largest that fits"
    );
    assert!(tile(None).ends_with("and a tile of 512 x 512 pixels, the smallest there is, does not fit"));
    assert_eq!(
        stop.to_string(),
        "memory ran out in forward of step 10, and no progress: 128 failures while 3 steps were done"
    );
    let words = format!(
        r#""stop":{{"step":10,"phase":"forward","cause":{{"why":"no_progress","failures":128,"committed":3}},{MEASURES},"tried":[{{"phase":"forward","rung":"clean",{MEASURES}}}]}}"#
    );
    let event = Event::MetricMissing { step: Step(9), metric: "lpips".into(), reason: "no room".into() };
    check(event, r#""event":"metric_missing","step":9,"metric":"lpips","reason":"no room""#);
    let event = Event::TileHalved { step: Step(9), tile: 256 };
    check(event, r#""event":"tile_halved","step":9,"tile":256"#);
    let event = Event::EvaluationFailed { step: Step(9), stop: stop.clone() };
    check(event, &format!(r#""event":"evaluation_failed","step":9,{words}"#));
    check(stopped(Ending::Line { stop }), &format!(r#""event":"stopped","step":9,"reason":"line",{words}"#));
}
