// Modulezip packs the Go module, the C library included, as a folder that the go command takes for a
// module proxy:
//
//	cd ffi/go/tools && go run ./modulezip OUT
//
// writes OUT/callgate.dev/callgate/@v/: list, v0.1.0.info, v0.1.0.mod, v0.1.0.zip. The library must have
// been built before, by build.sh. The same files make the same zip.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"callgate.dev/callgate"
)

var packed = module.Version{Path: "callgate.dev/callgate", Version: "v" + callgate.Version}

// notPacked is what serves only a clone of the whole repository.
var notPacked = []string{"internal/vectors/", "tools/", "build.sh", ".gitignore"}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: modulezip OUT")
		os.Exit(2)
	}
	written, err := pack("..", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(written)
}

// pack writes the module that is in root, a folder of the repository, and returns the zip's name.
func pack(root, out string) (string, error) {
	files, err := filesOf(root)
	if err != nil {
		return "", err
	}
	escaped, err := module.EscapePath(packed.Path)
	if err != nil {
		return "", err
	}
	folder := filepath.Join(out, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	info, err := json.Marshal(map[string]string{"Version": packed.Version})
	if err != nil {
		return "", err
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return "", err
	}
	for name, content := range map[string][]byte{
		"list": []byte(packed.Version + "\n"), packed.Version + ".info": info, packed.Version + ".mod": mod,
	} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil {
			return "", err
		}
	}
	name := filepath.Join(folder, packed.Version+".zip")
	archive, err := os.Create(name)
	if err != nil {
		return "", err
	}
	if err := zip.Create(archive, packed, files); err != nil {
		return "", err
	}
	return name, archive.Close()
}

func filesOf(root string) ([]zip.File, error) {
	checked, err := zip.CheckDir(root)
	if err != nil {
		return nil, err
	}
	var files []zip.File
	hasLibrary := false
	for _, here := range checked.Valid {
		relative, err := filepath.Rel(root, here)
		if err != nil {
			return nil, err
		}
		path := filepath.ToSlash(relative)
		if isPacked(path) {
			files = append(files, file{path, here})
			hasLibrary = hasLibrary || strings.HasSuffix(path, "libcallgate.a")
		}
	}
	if !hasLibrary {
		return nil, fmt.Errorf("no lib/*/libcallgate.a in %s: run build.sh first", root)
	}
	for _, license := range []string{"LICENSE-APACHE", "LICENSE-MIT", "LICENSE-THIRD-PARTY"} {
		files = append(files, file{license, filepath.Join(root, "..", "..", license)})
	}
	return files, nil
}

func isPacked(path string) bool {
	for _, prefix := range notPacked {
		if strings.HasPrefix(path, prefix) {
			return false
		}
	}
	return true
}

// file is one that goes into the zip under another name than it has here.
type file struct{ name, here string }

func (f file) Path() string                 { return f.name }
func (f file) Lstat() (os.FileInfo, error)  { return os.Stat(f.here) }
func (f file) Open() (io.ReadCloser, error) { return os.Open(f.here) }
