package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	code, err := run(context.Background(), os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "docscheck:", err)
	}
	os.Exit(code)
}

// run returns 0 where all is well, 1 with findings, 2 where it could not look.
func run(ctx context.Context, args []string, out io.Writer) (int, error) {
	fs := flag.NewFlagSet("docscheck", flag.ContinueOnError)
	root := fs.String("root", ".", "`folder` of the repository")
	bin := fs.String("bin", "bin/rewardloop", "the built `program`")
	online := fs.Bool("online", false, "follow links to other hosts, too")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0, nil
	case err != nil:
		return 2, err
	}
	program, err := filepath.Abs(*bin)
	if err != nil {
		return 2, err
	}
	t, err := readTree(ctx, *root, program)
	if err != nil {
		return 2, err
	}
	c := &checker{tree: t, needed: map[string]bool{}}
	for _, check := range []func(context.Context) error{
		c.links, c.spans, c.commands, c.blocks, c.settings, c.runs, c.metrics, c.helps,
	} {
		if err := check(ctx); err != nil {
			return 2, err
		}
	}
	if *online {
		if err := c.follow(ctx, out); err != nil {
			return 2, err
		}
	}
	c.excusesAreNeeded()
	return c.report(out), nil
}
