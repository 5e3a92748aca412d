//! What is put into the Pythons of a command: what it writes when memory runs out, and that the command sees nothing of it.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use lowtide_testkit::Printout;
use serde_json::{Value, json};

use super::kit::Place;

const FAKE_TORCH: &str = include_str!("scripts/fake_torch.py");

/// A place with a script and the library that it imports.
fn with(script: &str) -> Place {
    let place = Place::with("train.py", script);
    place.write("torch.py", FAKE_TORCH);
    place
}

/// The reports of the first run, by name.
fn reports(place: &Place) -> Vec<(String, Value)> {
    let folder = "runs/train-1/memory";
    if !place.path(folder).exists() {
        return Vec::new();
    }
    let names: BTreeSet<String> = place.names(folder);
    let names = names.into_iter().filter(|name| name.ends_with(".json"));
    names.map(|name| (name.clone(), place.json(&format!("{folder}/{name}")))).collect()
}

/// The innermost frame of the thread that asked.
fn asker(report: &Value) -> String {
    let thread = report["threads"].as_array().unwrap().iter().find(|thread| thread["asks"] == json!(true)).unwrap();
    let frames = thread["frames"].as_array().unwrap();
    let own = frames.iter().rfind(|frame| frame["file"].as_str().unwrap().ends_with("train.py")).unwrap();
    format!("{} {} {}", own["line"], own["function"].as_str().unwrap(), own["code"].as_str().unwrap())
}

const ATTENTION: &str = "import torch\n\ndef attention(heads):\n    weights = torch.Tensor([2048, 1024])\n    \
    scores = torch.empty(heads << 30)\n    return scores\n\nmodel = torch.Parameter([1 << 20])\nmodel.grad = torch.Tensor([1 << 20])\n\
    optimizer = torch.Optimizer({0: {'exp_avg': torch.Tensor([1 << 20]), 'step': 1}})\nattention(12)\n";

#[test]
fn an_error_that_ends_the_process_leaves_a_report() {
    let place = with(ATTENTION);
    let ran = place.run(&["--", "python3", "train.py"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let [(name, report)] = &reports(&place)[..] else { panic!("{:?}", reports(&place)) };
    assert!(name.starts_with("start-1-rank-none-") && name.ends_with("-first.json"), "{name}");
    let asked = 12_u64 << 30;
    assert_eq!((&report["asked_bytes"], &report["device"]), (&json!(asked), &json!("cuda:0")));
    assert_eq!((&report["limit_bytes"], &report["free_bytes"]), (&json!(80_u64 << 30), &json!(1 << 30)));
    assert_eq!(
        report["error"],
        json!(format!("OutOfMemoryError: CUDA out of memory. Tried to allocate {asked} bytes."))
    );
    assert_eq!(asker(report), "5 attention scores = torch.empty(heads << 30)");
    let variable = &report["variables"][0];
    assert_eq!((&variable["name"], &variable["line"]), (&json!("weights"), &json!(5)));
    assert_eq!((&variable["shape"], &variable["dtype"]), (&json!([2048, 1024]), &json!("float32")));
    let holders: BTreeSet<String> = report["holders"]
        .as_array()
        .unwrap()
        .iter()
        .map(|holder| format!("{} {}", holder["kind"].as_str().unwrap(), holder["bytes"]))
        .collect();
    for holder in
        ["parameters 4194304", "gradients 4194304", "optimizer state 4194304", "other tensors of Python 8388608"]
    {
        assert!(holders.contains(holder), "{holders:?}");
    }
    let snapshot = place.path("runs/train-1/memory").join(report["snapshot"].as_str().unwrap());
    let reader = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb'))['segments'][0]['total_size'])";
    let read = Printout::of(Command::new("python3").args(["-c", reader]).arg(snapshot).output().unwrap());
    assert_eq!(read.stdout, "4194304\n", "{}", read.stderr);
    assert_eq!(place.story("runs/train-1")["starts"][0]["inside"], json!("active"));
}

/// A library that meets no memory may still be asked a thousand times.
#[test]
fn an_error_that_is_caught_a_thousand_times_costs_little() {
    let script = "import torch, time\nbegun = time.time()\nfor number in range(1000):\n    try:\n        torch.empty(1 << 40)\n    \
                  except torch.OutOfMemoryError:\n        pass\nprint(torch.snapshots < 50, time.time() - begun < 20)\n";
    let place = with(script);
    let ran = place.run(&["--", "python3", "train.py"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "True True\n"), "{}", ran.stderr);
    let names = place.names("runs/train-1/memory");
    assert!(names.len() <= 4 && names.iter().all(|name| !name.ends_with(".part")), "{names:?}");
    assert!(reports(&place).iter().all(|(_, report)| report["error"].is_null()));
}

/// A frame that was asked for its variables keeps them, in all but the newest Pythons: so none is that goes on.
#[test]
fn a_script_that_goes_on_keeps_no_tensor_because_of_us() {
    let script = "import gc, torch, weakref\ndef train():\n    logits = torch.Tensor([1 << 20])\n    seen = weakref.ref(logits)\n    try:\n        \
                  torch.empty(1 << 40)\n    except torch.OutOfMemoryError:\n        pass\n    logits = None\n    gc.collect()\n    \
                  print(seen())\ntrain()\n";
    let place = with(script);
    let ran = place.run(&["--", "python3", "train.py"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "None\n"), "{}", ran.stderr);
    assert_eq!(reports(&place).len(), 1);
}

#[test]
fn files_are_bounded() {
    let place = with(&format!("import torch\ntorch.past = 80 << 20\n{ATTENTION}"));
    place.run(&["--", "python3", "train.py"]);
    // Past events are left out first.
    let [(_, report)] = &reports(&place)[..] else { panic!("one report") };
    let size =
        |name: &Value| fs::metadata(place.path("runs/train-1/memory").join(name.as_str().unwrap())).unwrap().len();
    assert!(size(&report["snapshot"]) < 1 << 20);
    // What is too large without them is not written.
    let snapshot =
        "import torch\ntorch.memory._snapshot = lambda: {'segments': b'x' * (80 << 20), 'device_traces': []}\n";
    let place = with(&format!("{snapshot}{ATTENTION}"));
    place.run(&["--", "python3", "train.py"]);
    let [(_, report)] = &reports(&place)[..] else { panic!("one report") };
    assert_eq!(report["snapshot"], Value::Null);
    assert_eq!(place.names("runs/train-1/memory").len(), 1);
}

#[test]
fn a_history_is_kept_after_a_crash() {
    let script = "import torch\nbatch_size = 4\naccum_steps = 1\nloss = 1 / accum_steps\ntorch.init()\nprint(torch.histories)\n\
                  if batch_size > 2: torch.empty(1 << 40)\n";
    let history = "[[('state',), {'context': 'state', 'stacks': 'python'}]]\n";
    let cases = [
        (&[][..], format!("[]\n{history}")),
        (&["--watch-memory"], format!("[]\n{history}")),
        (&["--watch-memory=always"], format!("{history}{history}")),
        (&["--watch-memory=off"], "[]\n[]\n".to_owned()),
    ];
    for (words, expected) in cases {
        let place = with(script);
        let ran = place.run(&[words, &["--", "python3", "train.py"]].concat());
        assert_eq!((ran.code, &ran.stdout), (Some(0), &expected), "{words:?} {}", ran.stderr);
    }
}

/// Prints what a script can see of how its Python was started.
const MIRROR: &str = "import os, sys, subprocess\n\
    import torch\n\
    print(sys.path, sys.argv, sys.flags)\n\
    print([getattr(sys.modules.get(name), 'NAME', None) for name in ['sitecustomize', 'usercustomize']])\n\
    print([str(type(finder)) for finder in sys.meta_path], torch.__spec__.origin, type(torch.__loader__), vars(torch.__loader__))\n\
    try:\n    import sitecustomize\n    print(sitecustomize.__file__)\nexcept ImportError as error:\n    print(error)\n\
    if len(sys.argv) > 1:\n    print(subprocess.run([sys.executable, __file__], capture_output=True, text=True), flush=True)\n";

/// Variables of an environment, by name.
type Variables = [(&'static str, &'static str)];

/// What a command prints without us and with us.
fn twice(place: &Place, words: &[&str], variables: &Variables) -> [Printout; 2] {
    let python = variables.iter().copied().chain([("PYTHONNOUSERSITE", "")]);
    let alone = Command::new(words[0])
        .args(&words[1..])
        .current_dir(place.path(""))
        .env_remove("PYTHONPATH")
        .envs(python.clone())
        .output()
        .unwrap();
    let mut command = place.command(&[&["--quiet", "--"], words].concat());
    let ran = command.env_remove("PYTHONPATH").envs(python).output().unwrap();
    [alone, ran].map(Printout::of)
}

#[test]
fn the_command_sees_nothing_of_it() {
    let cases: [(&[&str], &Variables); 6] = [
        (&["python3", "train.py", "more"], &[]),
        (&["python3", "-m", "train", "more"], &[("PYTHONPATH", "own:other")]),
        (&["python3", "-X", "dev", "train.py", "more"], &[("PYTHONPATH", "broken")]),
        (
            &["python3", "train.py", "more"],
            &[("PYTHONPATH", "broken:own"), ("PYTHONUSERBASE", "base"), ("PYTHONNOUSERSITE", "")],
        ),
        (&["env", "PYTHONPATH=own", "python3", "train.py"], &[]),
        (&["python3", "-c", "raise ValueError(1)"], &[("PYTHONPATH", "own")]),
    ];
    for (words, variables) in cases {
        let place = with(MIRROR);
        for folder in ["own", "broken", "other"] {
            fs::create_dir(place.path(folder)).unwrap();
        }
        place.write("own/sitecustomize.py", "NAME = 'own'\n");
        place.write("own/usercustomize.py", "NAME = 'of the user'\n");
        place.write("broken/sitecustomize.py", "raise KeyError('of the user')\n");
        let [alone, ran] = twice(&place, words, variables);
        assert_eq!((ran.code, &ran.stdout), (alone.code, &alone.stdout), "{words:?}");
        assert_eq!(ran.stderr, alone.stderr, "{words:?}");
    }
}

#[test]
fn a_run_within_a_run_imports_as_it_would() {
    let place = with("import torch\nprint('there', torch.__name__)\n");
    let lowtide = env!("CARGO_BIN_EXE_lowtide");
    let ran = place.run(&["--", lowtide, "run", "--", lowtide, "run", "--", "python3", "train.py"]);
    assert_eq!((ran.code, &*ran.stdout), (Some(0), "there torch\n"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("Error"), "{}", ran.stderr);
}

#[test]
fn a_library_that_cannot_be_imported_fails_as_it_would() {
    let place = Place::with("train.py", "try:\n    import torch\nexcept ValueError:\n    print('no')\nimport torch\n");
    place.write("torch.py", "raise ValueError('broken')\n");
    let [alone, ran] = twice(&place, &["python3", "train.py"], &[]);
    assert_eq!((ran.code, &ran.stdout), (alone.code, &alone.stdout));
    let last = |printout: &Printout| printout.stderr.lines().last().map(str::to_owned);
    assert_eq!(last(&ran), last(&alone));
}

/// Whatever fails in what is put into the command, the command goes on.
#[test]
fn no_failure_of_ours_reaches_the_command() {
    let broken = [
        "cuda._lazy_call = None\n",
        "_C._cuda_attach_out_of_memory_observer = None\n",
        "del cuda\n",
        "memory._snapshot = None\n",
        "nn = None\n",
        "memory._record_memory_history = None\n",
    ];
    for change in broken {
        let place = with(
            "import torch\nprint('trains')\ntry: torch.empty(1 << 40)\nexcept Exception as error: print(type(error).__name__)\n",
        );
        place.write("torch.py", format!("{FAKE_TORCH}\n{change}"));
        let [alone, ran] = twice(&place, &["python3", "train.py"], &[]);
        let printed = [&ran.stdout, &ran.stderr];
        assert_eq!((ran.code, printed), (alone.code, [&alone.stdout, &alone.stderr]), "{change}");
    }
    // A folder that cannot be written to.
    let place = with(ATTENTION);
    place.write("blocked/memory", "");
    let ran = place.run(&["--out", "blocked/run", "--", "python3", "train.py"]);
    assert_eq!(ran.code, Some(3));
    assert!(ran.stderr.contains("OutOfMemoryError: CUDA out of memory"), "{}", ran.stderr);
}

#[test]
fn pythons_that_read_nothing_at_their_start_run_all_the_same() {
    for option in ["-I", "-E", "-S"] {
        let place = with("print('trains')\n");
        let ran = place.run(&["--", "python3", option, "train.py"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "trains\n"), "{option} {}", ran.stderr);
        assert!(!ran.stderr.contains("inside"), "{}", ran.stderr);
        assert_eq!(place.story("runs/train-1")["starts"][0]["inside"], json!("unread"), "{option}");
    }
}

#[test]
fn it_is_switched_off_by_a_flag_and_by_a_variable() {
    let script = "import os\nprint(os.environ.get('PYTHONPATH'))\n";
    let cases = [(&["--no-watch-memory"][..], ""), (&["--watch-memory=off"], ""), (&[], "off"), (&[], "0")];
    for (words, variable) in cases {
        let place = with(script);
        let mut command = place.command(&[words, &["--", "python3", "train.py"]].concat());
        command.env_remove("PYTHONPATH").env("LOWTIDE_WATCH_MEMORY", variable);
        let ran = Printout::of(command.output().unwrap());
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "None\n"), "{words:?} {variable}");
        assert_eq!(place.story("runs/train-1")["starts"][0]["inside"], Value::Null);
        assert!(!place.path("runs/train-1/inside-1").exists());
    }
    let place = with(script);
    let mut command = place.command(&["--", "python3", "train.py"]);
    let ran = Printout::of(command.env("LOWTIDE_WATCH_MEMORY", "sometimes").output().unwrap());
    assert_eq!(ran.code, Some(2));
    assert_eq!(
        ran.stderr,
        "error: LOWTIDE_WATCH_MEMORY is `sometimes`\nhint: it takes always, after-crash or off, as --watch-memory does\n"
    );
    // What a command sets for itself alone.
    let place = with(ATTENTION);
    place.run(&["--", "env", "LOWTIDE_WATCH_MEMORY=off", "python3", "train.py"]);
    assert_eq!(reports(&place), []);
}

#[test]
fn a_pytorch_that_does_not_know_growing_segments_is_not_told_of_them() {
    for (version, left) in [("2.0.1+cu118", "None"), ("2.1.0", "expandable_segments:True")] {
        let place = with("import os, torch\nprint(os.environ.get('PYTORCH_CUDA_ALLOC_CONF'))\n");
        place.write("torch.py", format!("{FAKE_TORCH}\n__version__ = '{version}'\n"));
        let ran = place.run(&["--", "python3", "train.py"]);
        assert_eq!((ran.code, ran.stdout.trim_end()), (Some(0), left), "{}", ran.stderr);
    }
}

#[test]
fn a_command_that_is_no_python_is_left_alone() {
    let place = Place::with("go.sh", "#!/bin/sh\necho \"[$PYTHONPATH]\"\n");
    let mut command = place.command(&["--", "sh", "./go.sh"]);
    let ran = Printout::of(command.env_remove("PYTHONPATH").output().unwrap());
    assert_eq!(ran.stdout, "[]\n");
}

#[test]
fn workers_and_threads_write_their_own() {
    let script = "import multiprocessing, sys, threading\n\
        def work(_):\n    import torch\n    torch.empty(1 << 40)\n\
        if __name__ == '__main__':\n    process = multiprocessing.get_context(sys.argv[1]).Process(target=work, args=[0])\n    \
        process.start()\n    process.join()\n    thread = threading.Thread(target=work, args=[0], name='loader')\n    \
        thread.start()\n    thread.join()\n";
    for method in ["spawn", "forkserver", "fork"] {
        let place = with(script);
        let ran = place.run(&["--", "python3", "train.py", method]);
        let found = reports(&place);
        let names: Vec<&Value> = found.iter().map(|(_, report)| &report["threads"][0]["name"]).collect();
        assert_eq!((ran.code, names.len()), (Some(0), 2), "{method} {found:?} {}", ran.stderr);
        assert!(names.contains(&&json!("loader")) && names.contains(&&json!("MainThread")), "{names:?}");
        assert!(found.iter().all(|(_, report)| asker(report).ends_with("work torch.empty(1 << 40)")), "{found:?}");
    }
}

/// A script that shows errors in its own way.
#[test]
fn another_hook_for_errors_is_no_hindrance() {
    let script = "import torch, sys\nsys.excepthook = lambda *_: print('mine')\nraise RuntimeError('[enforce fail at alloc_cpu.cpp:124] \
                  err == 0. DefaultCPUAllocator: can\\'t allocate memory: you tried to allocate 4096 bytes. Error code 12')\n";
    let place = with(script);
    let ran = place.run(&["--", "python3", "train.py"]);
    assert_eq!(ran.stdout, "mine\n");
    let [(_, report)] = &reports(&place)[..] else { panic!("one report") };
    assert_eq!((&report["asked_bytes"], &report["device"]), (&json!(4096), &json!("cpu")));
}

/// What `run` says after a crash, and `lowtide explain` of the run.
#[test]
fn the_answer_names_the_line_and_who_holds_most() {
    // The log itself has no stack.
    let script = format!(
        "import sys\nsys.excepthook = lambda kind, error, trace: print('torch.OutOfMemoryError:', error, file=sys.stderr)\n{ATTENTION}"
    );
    // Libraries are where Python puts them, and none of the script's own code.
    let run = |words: &[&str]| {
        let place = Place::with("train.py", &script);
        fs::create_dir(place.path("site-packages")).unwrap();
        place.write("site-packages/torch.py", FAKE_TORCH);
        let mut command = place.command(&[words, &["--", "python3", "train.py"]].concat());
        let ran = Printout::of(command.env("PYTHONPATH", place.path("site-packages")).output().unwrap());
        assert_eq!(ran.code, Some(3), "{}", ran.stderr);
        (place, ran)
    };
    let (place, ran) = run(&[]);
    let here = place.path("").canonicalize().unwrap().display().to_string();
    let said = ran.stderr.replace(&here, "HERE");
    for line in [
        "lowtide:   asked for in HERE/train.py, line 7, in attention: scores = torch.empty(heads << 30)\n",
        "lowtide:   held most: 8.00 MiB: other tensors of Python; 4.00 MiB: ",
    ] {
        assert!(said.contains(line), "{said}");
    }
    let explain = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lowtide"));
        Printout::of(command.arg("explain").args(words).current_dir(place.path("")).output().unwrap()).stdout
    };
    for words in [&[][..], &["runs/train-1"], &["runs/train-1/start-1.log"], &["--all"]] {
        let page = explain(words).replace(&here, "HERE");
        assert!(page.contains("HERE/train.py, line 7, in attention: scores = torch.empty(heads << 30)"), "{page}");
        assert!(page.contains("`scores`") && page.contains("holds     8.00 MiB: other tensors of Python"), "{page}");
        assert!(page.contains("8.00 MiB of it: `weights`, 2048 x 1024 in float32, a variable of"), "{page}");
    }
    // With a history it is the line that made them.
    let (place, _) = run(&["--watch-memory=always"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_lowtide"));
    let page = Printout::of(command.arg("explain").current_dir(place.path("")).output().unwrap()).stdout;
    assert!(page.contains("holds     3.00 MiB made in model.py, line 7, in forward\n"), "{page}");
}

/// A script that shows errors in words of its own, in which nobody would find one of memory.
#[test]
fn what_a_process_wrote_down_counts() {
    let script = "import sys, torch\nsys.excepthook = lambda *_: print('Oh no!', file=sys.stderr)\nbatch_size = 4\naccum_steps = 1\n\
                  loss = 1 / accum_steps\nif batch_size > 2: torch.empty(1 << 40)\nprint('trained with', batch_size)\n";
    let place = with(script);
    let ran = place.run(&["--", "python3", "train.py"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "trained with 2\n"), "{}", ran.stderr);
    let cause = "an out-of-memory error ended a process of the command, as it wrote down itself: 1.00 TiB asked for";
    assert_eq!(place.story("runs/train-1")["starts"][0]["cause"], json!(cause));
    let ran = with(script).run(&["--no-watch-memory", "--", "python3", "train.py"]);
    assert_eq!(ran.code, Some(1));
}
