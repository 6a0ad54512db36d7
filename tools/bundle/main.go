// Command bundle packs a folder into parts, and checks and joins them. It is static and travels
// with what it has packed (scripts/gpu-bundle.sh), so that the other end needs nothing.
//
//	bundle pack FOLDER PARTS NAME    every file below FOLDER, into NAME.000 and so on in PARTS
//	bundle check PARTS               the parts are all there and whole
//	bundle join PARTS ROOT           the same, and the files below ROOT, which must not be there
//	bundle thin sm_90 LIBRARY...     zeroes in CUDA libraries the code for other architectures
//
// Exit code 1: it was refused; 2: usage.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/rewardloop/rewardloop/internal/bundle"
	"github.com/rewardloop/rewardloop/tools/bundle/fatbin"
)

const usage = `usage: bundle pack FOLDER PARTS NAME | bundle check PARTS | bundle join PARTS ROOT | bundle thin ARCHITECTURE LIBRARY...`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var err error
	switch {
	case len(args) == 4 && args[0] == "pack":
		err = pack(ctx, args[1], args[2], args[3], stdout)
	case len(args) == 2 && args[0] == "check":
		var m bundle.Manifest
		if m, err = bundle.Check(ctx, args[1], 0); err == nil {
			fmt.Fprintf(stdout, "%s: %d parts are whole\n", about(m), len(m.Parts))
		}
	case len(args) == 3 && args[0] == "join":
		var m bundle.Manifest
		if m, err = bundle.Join(ctx, args[1], args[2], 0); err == nil {
			fmt.Fprintf(stdout, "%s: %d parts joined in %s\n", about(m), len(m.Parts), args[2])
		}
	case len(args) >= 3 && args[0] == "thin":
		err = thin(args[1], args[2:], stdout)
	default:
		fmt.Fprintln(stderr, usage)
		return 2
	}
	if err != nil {
		fmt.Fprintln(stderr, "bundle:", err)
		return 1
	}
	return 0
}

func about(m bundle.Manifest) string {
	return fmt.Sprintf("%s %s, %d files, %.1f MiB", m.Name, m.ID[:12], len(m.Files), float64(m.Bytes())/(1<<20))
}

func pack(ctx context.Context, folder, parts, name string, stdout io.Writer) error {
	files, err := bundle.Tree(folder)
	if err != nil {
		return err
	}
	m, err := bundle.Pack(ctx, parts, bundle.Options{Name: name}, files)
	if err != nil {
		return err
	}
	var packed int64
	for _, p := range m.Parts {
		packed += p.Size
	}
	fmt.Fprintf(stdout, "%s: %d parts of %.1f MiB together in %s\n", about(m), len(m.Parts), float64(packed)/(1<<20), parts)
	return nil
}

func thin(name string, libraries []string, stdout io.Writer) error {
	arch, err := fatbin.Arch(name)
	if err != nil {
		return err
	}
	for _, path := range libraries {
		r, err := fatbin.Thin(path, arch)
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "%s: %.1f MiB of code for %s are kept, %.1f MiB for others are zeroed\n",
			filepath.Base(path), float64(r.KeptBytes)/(1<<20), name, float64(r.ZeroedBytes)/(1<<20))
	}
	return nil
}
