//! Hands on where LibTorch's libraries are, which only direct dependents are told: a program that depends on this crate bakes
//! the folder into itself. Bakes it into test binaries, too.

fn main() {
    let libdir = std::env::var("DEP_LOWTIDE_TORCH_LIBDIR").expect("lowtide-torch publishes its library folder");
    println!("cargo::metadata=libdir={libdir}");
    println!("cargo::rustc-link-arg=-Wl,-rpath,{libdir}");
}
