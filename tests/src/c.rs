//! The C library and programs against it, built by the compilers of this machine. What is missing
//! is a failure, never skipped.
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;
use std::{env, fs, io, thread};

/// Where the built library lies.
pub struct Library {
    /// `libcallgate.a`
    pub archive: PathBuf,
    /// `libcallgate.so`, or what it is called here.
    pub shared: PathBuf,
}

/// In which language a program is compiled.
#[derive(Clone, Copy, Debug)]
pub enum Language {
    /// C99
    C,
    /// C++17
    Cpp,
}

/// Which form of the library a program is linked with.
#[derive(Clone, Copy, Debug)]
pub enum Linked {
    /// `libcallgate.a`
    Static,
    /// `libcallgate.so`
    Shared,
}

/// The project's root.
///
/// # Panics
/// Where the crate lies in none.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the project")
}

/// The library, built in release mode from the present sources.
///
/// # Panics
/// Where it can't be built.
pub fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into());
        let mut command = Command::new(cargo);
        command.current_dir(root()).args(["build", "--release", "--package", "callgate-ffi"]);
        command.args(["--quiet", "--message-format", "json-render-diagnostics"]);
        let built = output(&mut command);
        let files = artifacts(&String::from_utf8_lossy(&built.stdout));
        let find = |extensions: &[&str]| {
            let is_it = |file: &&PathBuf| {
                file.extension().is_some_and(|of| extensions.iter().any(|e| of == *e))
            };
            files.iter().find(is_it).expect("the library is among what was built").clone()
        };
        Library { archive: find(&["a"]), shared: find(&["so", "dylib"]) }
    })
}

/// The files that cargo says it built, or found built, of the library.
fn artifacts(messages: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in messages.lines() {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        if message["reason"] == "compiler-artifact" && message["target"]["name"] == "callgate" {
            let names = message["filenames"].as_array().into_iter().flatten();
            files.extend(names.filter_map(|name| name.as_str().map(PathBuf::from)));
        }
    }
    files
}

/// Runs a command that must succeed.
///
/// # Panics
/// Where it can't be run or fails.
pub fn output(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Runs a program that must end by itself within a minute (where the library panics, it loops for
/// ever); also what it printed.
///
/// # Panics
/// Where it can't be run or does not end.
pub fn run(program: &Path) -> (ExitStatus, String) {
    let mut child = Command::new(program)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{}: {e}", program.display()));
    let stdout = child.stdout.take().expect("a pipe");
    let reader = thread::spawn(move || io::read_to_string(stdout).expect("text"));
    for _ in 0..600 {
        if let Some(status) = child.try_wait().expect("a child") {
            return (status, reader.join().expect("text"));
        }
        thread::sleep(Duration::from_millis(100));
    }
    let _ = child.kill();
    panic!("{} does not end", program.display());
}

/// A command of the compiler, with every warning an error and the headers in reach.
pub fn compiler(language: Language) -> Command {
    let (variable, default, standard) = match language {
        Language::C => ("CC", "cc", "-std=c99"),
        Language::Cpp => ("CXX", "c++", "-std=c++17"),
    };
    let mut command = Command::new(env::var_os(variable).unwrap_or_else(|| default.into()));
    if let Language::Cpp = language {
        command.args(["-x", "c++"]);
    }
    command.args([standard, "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
    command.arg("-I").arg(root().join("include")).arg("-I").arg(root().join("tests/c"));
    command
}

/// Compiles the sources of that name in `tests/c` to a program, and says where it is.
///
/// # Panics
/// Where they don't compile without a warning.
pub fn compile(sources: &[&str], language: Language, linked: Linked) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let library = library();
    let directory = library.archive.with_file_name("callgate-programs");
    fs::create_dir_all(&directory).expect("a directory for programs");
    let name = Path::new(sources[0]).file_stem().expect("a source").to_string_lossy();
    let program = directory.join(format!("{name}-{language:?}-{linked:?}").to_lowercase());
    // Under a name of its own first, since another process may be compiling it too.
    let fresh = program.with_extension(std::process::id().to_string());
    let mut command = compiler(language);
    command.args(sources.iter().map(|source| root().join("tests/c").join(source)));
    // What follows is not C++.
    command.args(["-x", "none"]);
    match linked {
        Linked::Static => command.arg(&library.archive),
        Linked::Shared => {
            command.arg(&library.shared).arg(runtime_path(&library.shared, &directory))
        }
    };
    output(command.arg("-o").arg(&fresh));
    fs::rename(&fresh, &program).expect("the program takes its place");
    program
}

/// The name by which programs look for the shared library.
pub fn soname() -> String {
    let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
    format!("libcallgate.so.{major}.{minor}")
}

/// Makes the shared library known by its soname in that directory, and says so to the linker.
fn runtime_path(shared: &Path, directory: &Path) -> OsString {
    let installed = directory.join(soname());
    let fresh = directory.join(format!("{}.{}", soname(), std::process::id()));
    fs::copy(shared, &fresh).expect("the library can be copied");
    fs::rename(&fresh, &installed).expect("the library takes its place");
    let mut argument = OsString::from("-Wl,-rpath,");
    argument.push(directory);
    argument
}
