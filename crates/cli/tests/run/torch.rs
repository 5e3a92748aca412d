//! A script on PyTorch itself, which CI's LibTorch is not: `LOWTIDE_TORCH_PYTHON` names a Python that can import
//! torch.

use std::env;

use serde_json::json;

use crate::kit::Place;

const TRAIN: &str = r#"
import resource, sys, torch
settings = dict(word.lstrip("-").split("=") for word in sys.argv[1:])
micro, accum = int(settings["batch_size"]), int(settings.get("gradient_accumulation_steps", 1))
torch.manual_seed(1)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 65536), torch.nn.GELU(), torch.nn.Linear(65536, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.randn(512, 256)
held = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) << 10
resource.setrlimit(resource.RLIMIT_AS, (held + (300 << 20), held + (300 << 20)))
seen = 0
for step in range(2):
    print("step", step, flush=True)
    for piece in data.split(micro)[:accum]:
        (model(piece).pow(2).mean() / accum).backward()
        seen += len(piece)
    optimizer.step()
    optimizer.zero_grad()
print("seen", seen, flush=True)
"#;

#[test]
fn real_pytorch_runs_out_and_finishes_on_a_lower_rung() {
    let Some(python) = env::var_os("LOWTIDE_TORCH_PYTHON") else {
        eprintln!("SKIPPED: LOWTIDE_TORCH_PYTHON names no Python with torch");
        return;
    };
    let place = Place::with("train.py", TRAIN);
    let rung = "--batch_size={micro} --gradient_accumulation_steps={accum}";
    let ran = place.run(&["--rung", rung, "--", python.to_str().unwrap(), "train.py", "--batch_size=512"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.ends_with("seen 1024\n"), "{ran:?}");
    let story = place.story("runs/train-1");
    let starts = story["starts"].as_array().unwrap();
    assert!(starts.len() > 1 && story["effective_batch"] == json!(512), "{story:#}");
    assert!(starts[0]["line"].as_str().unwrap().contains("DefaultCPUAllocator"), "{story:#}");
}
