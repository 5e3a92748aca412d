//! Compiles the C++ shim against the LibTorch that torch-sys found, and tells dependents where its libraries are.

use std::env;
use std::path::PathBuf;

/// Includes all the others: reading LibTorch's headers takes four times as long as compiling what is ours, so they are read once.
const SOURCE: &str = "shim/shim.cpp";

fn main() {
    // torch-sys declares `links = "tch"` and publishes `libtorch_lib`; only its direct dependents see it.
    let lib = PathBuf::from(env::var("DEP_TCH_LIBTORCH_LIB").expect("torch-sys publishes its library folder"));
    let torch = lib.parent().expect("the library folder lies in the torch folder");
    let include = torch.join("include");

    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").pic(true).define("GLOG_USE_GLOG_EXPORT", None);
    build.include("shim");
    // GCC guesses what a virtual function of LibTorch's headers is and calls it directly: one that needs CUDA's own library.
    build.flag_if_supported("-fno-devirtualize-speculatively");
    // System folders, because LibTorch's headers are not ours to be warned about.
    for folder in [
        PathBuf::from("shim/cuda_types"),
        PathBuf::from("shim/gloo_types"),
        include.clone(),
        include.join("torch/csrc/api/include"),
    ] {
        build.flag("-isystem").flag(folder.display().to_string());
    }
    println!("cargo::rerun-if-changed=shim");
    build.file(SOURCE).compile("lowtide_shim");

    println!("cargo::metadata=libdir={}", lib.display());
    println!("cargo::rustc-link-arg=-Wl,-rpath,{}", lib.display());
}
