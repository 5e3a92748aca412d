//! A command in a terminal.

use std::process::Command;

use lowtide_testkit::Printout;

use super::kit::Place;

const LOWTIDE: &str = env!("CARGO_BIN_EXE_lowtide");

fn in_terminal(place: &Place, steps: &str, script: &str) -> Printout {
    std::fs::write(place.path("script.py"), script).unwrap();
    typed(place, steps, &[LOWTIDE, "run", "-q", "--", "python3", "-u", "script.py"])
}

fn typed(place: &Place, steps: &str, words: &[&str]) -> Printout {
    let mut command = Command::new("python3");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/run/in_terminal.py")).arg(steps).args(words);
    command.env("LOWTIDE", LOWTIDE);
    Printout::of(command.current_dir(place.path("")).output().unwrap())
}

#[test]
fn the_command_has_a_terminal_of_the_same_size_that_follows_ours() {
    let place = Place::new();
    let script = "import os, signal, sys\nprint([os.isatty(number) for number in range(3)], os.get_terminal_size(1))\n\
                  signal.signal(signal.SIGWINCH, lambda *_: (print(os.get_terminal_size(1)), os._exit(6)))\n\
                  os.write(1, b'ready\\n')\nwhile True: signal.pause()\n";
    let ran = in_terminal(&place, "ready=resize", script);
    assert_eq!(ran.code, Some(6), "{ran:?}");
    let expected = "[True, True, True] os.terminal_size(columns=77, lines=33)\r\nready\r\n\
                    os.terminal_size(columns=50, lines=20)\r\nsettings kept\n";
    assert_eq!(ran.stdout, expected);
    assert!(place.text("runs/script-1/start-1.log").contains("ready"));
}

#[test]
fn keys_and_ctrl_c_reach_the_command() {
    let place = Place::new();
    let script = "print('heard', input('name? '))\ntry:\n    import signal\n    print('wait')\n    signal.pause()\n\
                  except KeyboardInterrupt:\n    print('saved')\n    raise SystemExit(8)\n";
    let ran = in_terminal(&place, "name?=ada\n,wait=^C", script);
    assert_eq!(ran.code, Some(8), "{ran:?}");
    assert!(ran.stdout.contains("heard ada\r\n") && ran.stdout.contains("saved\r\n"), "{ran:?}");
    assert!(ran.stdout.ends_with("settings kept\n"), "{ran:?}");
    assert_eq!(place.story("runs/script-1")["ending"], "interrupted");
}

#[test]
fn a_shell_stops_it_and_lets_it_go_on_in_the_background() {
    let place = Place::new();
    let script = "import pathlib, time\nprint('one')\n\
                  while not pathlib.Path('go').exists(): time.sleep(0.01)\nprint('two')\n\
                  while not pathlib.Path('end').exists(): time.sleep(0.01)\nprint('three', input('name? '))\n";
    std::fs::write(place.path("script.py"), script).unwrap();
    // In the background it runs on and the keys are the shell's; then they are the command's again.
    let steps = "bash-=$LOWTIDE run -q -- python3 -u script.py\n,one=^Z,Stopped=touch go; bg\n,\
                 two=touch end; stty -a\n,icanon=fg; echo code $?; exit\n,name?=ada\n";
    let ran = typed(&place, steps, &["/bin/bash", "--norc", "--noprofile", "-i"]);
    // Two carriage returns, where it is answered before our terminal has taken the keys back.
    let answered = ran.stdout.replace("\r\r\n", "\r\n").contains("three ada\r\n");
    assert!(answered && ran.stdout.contains("code 0\r\n"), "{ran:?}");
    assert!(!ran.stdout.contains("-icanon"), "{ran:?}");
    assert_eq!(place.story("runs/script-1")["ending"], "finished");
}

#[test]
fn what_reads_keys_in_the_background_gets_them_in_the_foreground() {
    let place = Place::new();
    std::fs::write(place.path("script.py"), "print('three', input('name? '))\n").unwrap();
    let steps = "bash-=$LOWTIDE run -q -- python3 -u script.py &\n,name?=stty -a\n,\
                 icanon=fg; stty -a; echo code $?; exit\n,code=ada\n";
    let ran = typed(&place, steps, &["/bin/bash", "--norc", "--noprofile", "-i"]);
    assert!(ran.stdout.replace("\r\r\n", "\r\n").contains("three ada\r\n"), "{ran:?}");
    // The keys were the shell's in the background, and are again at the end.
    assert!(ran.stdout.contains("code 0\r\n") && !ran.stdout.contains("-icanon"), "{ran:?}");
    assert_eq!(place.story("runs/script-1")["ending"], "finished");
}

#[test]
fn what_reads_keys_in_the_background_with_its_output_elsewhere_leaves_the_shell_its_own() {
    let place = Place::new();
    std::fs::write(place.path("script.py"), "open('begun', 'w').close()\nprint('three', input())\n").unwrap();
    let steps = "bash-=$LOWTIDE run -q -- python3 -u script.py > out 2>&1 &\n\
                 ,bash-=until [ -e begun ]; do sleep 0.1; done; echo is there\n,\
                 is there\r=sleep 0.5; echo ours; kill %1; sleep 1; exit\n";
    let ran = typed(&place, steps, &["/bin/bash", "--norc", "--noprofile", "-i"]);
    assert!(ran.stdout.contains("ours\r\n"), "{ran:?}");
    assert!(!place.text("out").contains("three"), "{ran:?}");
}

#[test]
fn ctrl_c_ends_a_loop_of_the_shell_too() {
    let place = Place::new();
    let script = "import signal\nopen('ran', 'a').write('x')\nprint('wait')\nsignal.pause()\n";
    std::fs::write(place.path("script.py"), script).unwrap();
    let steps = "bash-=PROMPT_COMMAND='echo [$?]'; for i in 1 2 3; do $LOWTIDE run -q -- python3 -u script.py; done\n,\
                 wait=^C,[130]=exit\n";
    let ran = typed(&place, steps, &["/bin/bash", "--norc", "--noprofile", "-i"]);
    assert!(ran.stdout.contains("[130]\r\n"), "{ran:?}");
    assert_eq!(place.text("ran"), "x");
}

#[test]
fn keys_are_left_to_whoever_shows_the_output() {
    let place = Place::new();
    // As `less` does, what comes after the bar reads keys from the terminal.
    let pager = "$LOWTIDE run -q -- sh -c 'echo ready >&2; cat fifo' | \
                 { read key < /dev/tty; echo pager got $key; echo > fifo; }";
    let ran = typed(&place, "ready=q\n", &["/bin/sh", "-c", &format!("mkfifo fifo; {pager}")]);
    assert!(ran.stdout.contains("pager got q\r\n"), "{ran:?}");
    // A command whose output goes on can still ask.
    let line = "$LOWTIDE run -q -- python3 -c 'print(input(\"name? \"))' 2>&1 | cat";
    let ran = typed(&place, "name?=ada\n", &["/bin/sh", "-c", line]);
    assert!(ran.stdout.ends_with("name? ada\r\nada\r\nsettings kept\n"), "{ran:?}");
}
