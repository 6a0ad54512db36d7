package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
)

// profiled runs f under the CPU profiler if there is a folder for the profile.
func profiled(folder, name string, rep int, f func() error) error {
	if folder == "" {
		return f()
	}
	file, err := os.Create(filepath.Join(folder, fmt.Sprintf("%s.%d.cpu.pprof", name, rep)))
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return errors.Join(fmt.Errorf("profile: %w", err), file.Close())
	}
	err = f()
	pprof.StopCPUProfile()
	return errors.Join(err, file.Close())
}

// writeAllocs writes what the process has allocated so far, by call.
func writeAllocs(folder string) error {
	if folder == "" {
		return nil
	}
	file, err := os.Create(filepath.Join(folder, "allocs.pprof"))
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	return errors.Join(pprof.Lookup("allocs").WriteTo(file, 0), file.Close())
}
