//! Compiles the C++ shim against the LibTorch that torch-sys found, and tells dependents where its libraries are.

use std::env;
use std::path::{Path, PathBuf};

const SOURCES: &[&str] = &[
    "allocator.cpp",
    "cuda.cpp",
    "kernel.cpp",
    "libraries.cpp",
    "loss.cpp",
    "numerics.cpp",
    "recompute.cpp",
    "settings.cpp",
];

fn main() {
    // torch-sys declares `links = "tch"` and publishes `libtorch_lib`; only its direct dependents see it.
    let lib = PathBuf::from(env::var("DEP_TCH_LIBTORCH_LIB").expect("torch-sys publishes its library folder"));
    let torch = lib.parent().expect("the library folder lies in the torch folder");
    let include = torch.join("include");

    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").pic(true).define("GLOG_USE_GLOG_EXPORT", None);
    build.include("shim");
    // System folders, because LibTorch's headers are not ours to be warned about.
    for folder in [PathBuf::from("shim/cuda_types"), include.clone(), include.join("torch/csrc/api/include")] {
        build.flag("-isystem").flag(folder.display().to_string());
    }
    for source in SOURCES {
        let path = Path::new("shim").join(source);
        println!("cargo::rerun-if-changed={}", path.display());
        build.file(path);
    }
    println!("cargo::rerun-if-changed=shim/lowtide.h");
    println!("cargo::rerun-if-changed=shim/kernel.h");
    println!("cargo::rerun-if-changed=shim/cuda_types");
    build.compile("lowtide_shim");

    println!("cargo::metadata=libdir={}", lib.display());
    println!("cargo::rustc-link-arg=-Wl,-rpath,{}", lib.display());
}
