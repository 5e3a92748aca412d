//! Names and texts that would steer a terminal, in every place where a command takes or finds one.

use std::fs;
use std::process::Command;

use lowtide_testkit::{HOSTILE, Printout, Sandbox, check_plain};

use crate::kit::sandbox;

const OOM: &str = "iter 4: loss 3.1\nTraceback (most recent call last):\n  File \"train.py\", line 3, in step\n    \
                   loss.backward()\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total \
                   capacity of 23.65 GiB of which 1.40 GiB is free. Process 4242 has 22.24 GiB memory in use. Of the \
                   allocated memory 20.10 GiB is allocated by PyTorch, and 1.63 GiB is reserved by PyTorch but unallocated.\n";

/// `lowtide` with these words; `NAME` in them stands for the hostile name.
fn words<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = String> + 'a {
    text.split_whitespace().map(move |word| word.replace("NAME", name))
}

/// Runs one command and looks at all that it prints.
#[track_caller]
fn check(place: &Sandbox, text: &str, name: &str) -> Printout {
    let printout = Printout::of(place.command("").args(words(text, name)).output().unwrap());
    check_plain(text, &printout);
    assert_ne!(printout.code, Some(101), "{text}: {}", printout.stderr);
    printout
}

#[test]
fn in_arguments() {
    for name in HOSTILE {
        let place = sandbox();
        for text in [
            "NAME",
            "--NAME",
            "help NAME",
            "data",
            "data NAME",
            "data --NAME x",
            "data x --host-limit NAME",
            "pack NAME --out NAME",
            "pack x --out y --shard-size NAME",
            "watch NAME",
            "watch --port NAME",
            "watch --host NAME",
            "watch --pid NAME",
            "top NAME",
            "report NAME",
            "report --out NAME NAME",
            "explain NAME",
            "explain --config NAME NAME",
            "explain --NAME",
            "train --watch=NAME",
            "doctor --NAME",
            "doctor --root NAME",
            "doctor --json --root NAME",
            "run NAME",
            "run --NAME -- true",
            "run -- NAME",
            "run --grace NAME -- true",
            "run --preset NAME -- true",
            "run --rung NAME -- true",
            "run --rung-env NAME -- true",
            "run --batch NAME -- true",
            "run --config NAME --rung-config NAME -- true NAME",
            "run --json NAME/x -- true",
            "run --resume-with NAME --checkpoint-glob NAME -- true",
            "run --dry-run -- python3 NAME --batch_size 4",
            "run --dry-run --json - -- python3 NAME --batch_size 4",
            "run --dry-run --rung --bs={micro}NAME -- NAME --bs 4",
        ] {
            check(&place, text, name);
        }
        let engine = place.path("").join(name);
        let missing = place.command("train x.yaml").env("LOWTIDE_ENGINE", &engine).output().unwrap();
        check_plain("LOWTIDE_ENGINE", &Printout::of(missing));
    }
}

#[test]
fn in_the_environment() {
    for name in HOSTILE {
        let place = sandbox();
        for text in ["doctor", "doctor --json"] {
            let mut command = place.command(text);
            command.env("PYTORCH_CUDA_ALLOC_CONF", name).env("VIRTUAL_ENV", name).env("CUDA_VISIBLE_DEVICES", name);
            check_plain(text, &Printout::of(command.output().unwrap()));
        }
    }
}

#[test]
fn in_names_of_logs_and_lines_of_them() {
    for name in HOSTILE {
        let place = sandbox();
        let line = name.replace('\n', " ");
        let log = OOM
            .replace("train.py", &line)
            .replace("loss.backward()", &line)
            .replace("iter 4", &format!("{line} iter 4"));
        place.write(name, format!("2025-10-24 19:41:00 {line}\n{log}"));
        place.write("none.log", format!("{line} MemoryError? not at all {line}\nno out of memory {line}\n"));
        place.write(&format!("{name}.yaml"), format!("name: \"{line}\"\nbatch_size: 12 # {line}\naccum_steps: 2\n"));
        place.write("bad.yaml", format!("{name}: [\n"));
        for text in [
            "explain NAME",
            "explain NAME --all",
            "explain NAME --json",
            "explain none.log",
            "explain NAME --config NAME.yaml",
            "explain NAME --config bad.yaml",
            "explain NAME --command NAME",
            "explain NAME --config NAME.yaml --json",
            "explain NAME --config NAME.yaml --write",
            "explain NAME --config NAME.yaml --write",
            "explain NAME --config NAME.yaml",
        ] {
            check(&place, text, name);
        }
    }
}

#[test]
fn in_commands_that_are_kept_alive() {
    for name in HOSTILE {
        let place = sandbox();
        let line = name.replace('\n', " ");
        place.write("oom.log", OOM.replace("train.py", &line).replace("GPU 0", &format!("GPU 0 {line}")));
        place.write(name, "#!/bin/sh\n: \"$@\"; cat oom.log >&2; exit 1\n");
        // What the command prints is its own and passes as it is.
        let is_ours = |line: &&str| ["lowtide: ", "error: ", "hint: "].iter().any(|start| line.starts_with(start));
        for text in [
            "run --out a/NAME -- true",
            "run --out b/NAME -- sh NAME",
            "run --out c/NAME --batch 4 --rung --bs={micro} -- sh NAME NAME",
            "run --out d/NAME --batch 4 --rung-env X={micro}NAME -- sh NAME",
            "run --out e/NAME --json - -- true",
            "run --out f/NAME --batch 2 --rung --bs={micro} --resume-with NAME={checkpoint} --checkpoint-glob NAME*.pt -- sh NAME",
        ] {
            let output = place.command("").args(words(text, name)).output().unwrap();
            let own = String::from_utf8(output.stderr).unwrap();
            let own: String = own.split_inclusive('\n').filter(is_ours).collect();
            assert!(!own.is_empty(), "{text}");
            let stdout = String::from_utf8(output.stdout).unwrap();
            check_plain(text, &Printout { code: None, stdout, stderr: own });
        }
    }
}

/// A safetensors file with one value under a name.
fn tensor(name: &str) -> Vec<u8> {
    let header = serde_json::json!({ name: { "dtype": "F32", "shape": [2], "data_offsets": [0, 8] }, "__metadata__": { name: name } });
    let header = header.to_string();
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 8]].concat()
}

#[test]
fn in_data_files_and_their_names() {
    for name in HOSTILE {
        let place = sandbox();
        place.write(&format!("{name}/{name}.safetensors"), tensor(name));
        place.write(&format!("{name}/{name}.pt"), b"no such file");
        place.write(&format!("{name}/{name}"), b"something else");
        place.write(&format!("{name}.npy"), format!("\u{1}NUMPY{name}"));
        place.write(&format!("{name}.csv"), format!("id,{name}\n{name},x\n"));
        for text in [
            "data NAME",
            "data NAME --json",
            "data NAME/NAME.safetensors",
            "data NAME/NAME.safetensors --json",
            "data NAME/NAME.pt",
            "data NAME.npy",
            "data NAME --scores NAME.csv",
            "pack NAME --out NAME.out",
            "pack NAME --out NAME.out --scores NAME.csv",
            "data NAME/NAME.safetensors --sums",
        ] {
            check(&place, text, name);
        }
    }
}

#[test]
fn in_runs_that_are_watched() {
    for name in HOSTILE {
        let place = sandbox();
        fs::create_dir(place.path(name)).unwrap();
        check(&place, "watch NAME", name);
        check(&place, "report NAME", name);
        place.write(&format!("{name}/config.yaml"), format!("workload: \"{}\"\n", name.escape_default()));
        place.write(&format!("{name}/events.jsonl"), "");
        for text in ["report NAME --out NAME.html --svg NAME.svg", "report NAME --out none/NAME", "top NAME"] {
            check(&place, text, name);
        }
        for file in ["html", "svg"] {
            let text = place.text(&format!("{name}.{file}"));
            check_plain(file, &Printout { code: None, stdout: text, stderr: String::new() });
        }
    }
}

#[test]
fn clap_still_says_what_it_says() {
    let place = sandbox();
    let output = Command::new(env!("CARGO_BIN_EXE_lowtide")).args(["data", "--año"]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.starts_with("error: unexpected argument '--año' found\n"), "{text}");
    let shown = check(&place, "run --grace NAME -- true", "5\u{1b}");
    assert!(shown.stderr.starts_with("error: invalid value '5\\u{1b}' for '--grace <TIME>'"), "{}", shown.stderr);
}
