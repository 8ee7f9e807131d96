package main

import (
	"archive/zip"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const program = `package main

import (
	"fmt"
	"time"

	"callgate.dev/callgate"
)

func main() {
	gate, err := callgate.New(callgate.Config{
		Limits:   map[string]callgate.Limit{"caller": callgate.RateLimit{Count: 1, Per: time.Hour, Burst: 1}},
		Policies: map[string]callgate.Policy{"default": {{Limit: "caller", Scope: callgate.ScopeCaller}}},
	})
	if err != nil {
		panic(err)
	}
	for range 2 {
		_, err := gate.Admit("default", callgate.Call{Caller: "alice"})
		fmt.Println(err)
	}
}
`

func run(t *testing.T, folder string, environment []string, arguments ...string) string {
	t.Helper()
	command := exec.Command("go", arguments...)
	command.Dir, command.Env = folder, append(os.Environ(), environment...)
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("go %v: %v\n%s", arguments, err, output)
	}
	return string(output)
}

// A stranger's module gets the packed one as it would from any proxy, and runs it.
func TestAStrangersModuleGetsAndRunsThePackedOne(t *testing.T) {
	proxy, stranger, cache := t.TempDir(), t.TempDir(), t.TempDir()
	if _, err := pack("../..", proxy); err != nil {
		t.Fatal(err)
	}
	known := strings.Fields(run(t, ".", nil, "env", "GOMODCACHE", "GOPROXY"))
	environment := []string{
		"GOPROXY=file://" + proxy + ",file://" + filepath.Join(known[0], "cache", "download") + "," + known[1],
		"GOMODCACHE=" + cache, "GOFLAGS=-mod=mod -modcacherw", "GONOSUMDB=callgate.dev/*", "GOWORK=off",
	}
	if err := os.WriteFile(filepath.Join(stranger, "main.go"), []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, stranger, environment, "mod", "init", "example.com/stranger")
	run(t, stranger, environment, "get", "callgate.dev/callgate@latest")
	printed := run(t, stranger, environment, "run", ".")
	if !strings.Contains(printed, "<nil>\n") || !strings.Contains(printed, `refused by limit "caller" (rate): retry in`) {
		t.Error(printed)
	}
}

func TestTheSameFilesMakeTheSameZip(t *testing.T) {
	var zips [2][]byte
	for n := range zips {
		name, err := pack("../..", t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if zips[n], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(zips[0], zips[1]) {
		t.Error("they differ")
	}
	archive, err := zip.NewReader(bytes.NewReader(zips[0]), int64(len(zips[0])))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, file := range archive.File {
		names[strings.TrimPrefix(file.Name, "callgate.dev/callgate@"+packed.Version+"/")] = true
		if strings.Contains(file.Name, "/tools/") || strings.Contains(file.Name, "vectors") {
			t.Error(file.Name)
		}
	}
	for _, name := range []string{"go.mod", "gate.go", "library.h", "lib/include/callgate.h", "LICENSE-MIT", "LICENSE-APACHE", "LICENSE-THIRD-PARTY", "README.md"} {
		if !names[name] {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestWithoutItsLibraryTheModuleIsNotPacked(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "go.mod"), []byte("module callgate.dev/callgate\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := pack(root, t.TempDir()); err == nil || !strings.Contains(err.Error(), "run build.sh first") {
		t.Error(err)
	}
}
