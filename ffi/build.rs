//! Gives the shared library its soname, which changes with the ABI: before 1.0, with the minor
//! version.
fn main() {
    let major = env!("CARGO_PKG_VERSION_MAJOR");
    let minor = env!("CARGO_PKG_VERSION_MINOR");
    let system = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if matches!(system.as_str(), "linux" | "android" | "freebsd" | "netbsd" | "openbsd") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcallgate.so.{major}.{minor}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
