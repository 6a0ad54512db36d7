package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

const usage = `usage: house [name=]folder ...

Prints a Markdown table with one column for each folder: packages, lines, functions,
files, tests and repetitions of its Go.

Example:
  go run ./scripts/house before=../before after=.
`

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "house: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) == 0 || args[0] == "-h" || args[0] == "--help" {
		_, err := io.WriteString(out, usage)
		return err
	}
	var (
		houses []house
		faults []error
	)
	for _, arg := range args {
		name, folder, named := strings.Cut(arg, "=")
		if !named {
			folder = arg
		}
		h, err := measure(folder)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", folder, err))
			continue
		}
		h.name = name
		houses = append(houses, h)
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	_, err := io.WriteString(out, table(houses))
	return err
}
