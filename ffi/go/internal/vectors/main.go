// Vectors runs decision vectors through the Go package:
//
//	go run ./internal/vectors DIR
//
// prints a JSON line for each *.jsonl file of DIR, and exits with 1 where a scenario fails. A scenario
// that needs a kind of limit or a step that is not known here is listed as unsupported, never passed.
// The format is described beside the vectors.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// summary is what became of the scenarios of one file.
type summary struct {
	Surface          string   `json:"surface"`
	File             string   `json:"file"`
	Passed           int      `json:"passed"`
	Failed           int      `json:"failed"`
	Unsupported      int      `json:"unsupported"`
	FirstDifference  *string  `json:"first_difference"`
	UnsupportedNames []string `json:"unsupported_names"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: vectors DIR")
		os.Exit(2)
	}
	files, err := filepath.Glob(filepath.Join(os.Args[1], "*.jsonl"))
	if err != nil || len(files) == 0 {
		fmt.Fprintf(os.Stderr, "no *.jsonl files in %s\n", os.Args[1])
		os.Exit(2)
	}
	failed := 0
	printed := json.NewEncoder(os.Stdout)
	for _, file := range files {
		ran, err := runFile(file)
		if err == nil {
			err = printed.Encode(ran)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		failed += ran.Failed
	}
	if failed > 0 {
		os.Exit(1)
	}
}

func runFile(path string) (summary, error) {
	ran := summary{Surface: "go", File: filepath.Base(path), UnsupportedNames: []string{}}
	scenarios, err := readFile(path)
	if err != nil {
		return ran, err
	}
	for _, s := range scenarios {
		if !s.isSupported() {
			ran.Unsupported++
			ran.UnsupportedNames = append(ran.UnsupportedNames, s.Name)
			continue
		}
		difference := s.run()
		if difference == "" {
			ran.Passed++
			continue
		}
		ran.Failed++
		if ran.FirstDifference == nil {
			text := s.Name + ": " + difference
			ran.FirstDifference = &text
		}
	}
	return ran, nil
}
