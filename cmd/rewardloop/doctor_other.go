//go:build !linux

package main

// memory is not known here.
func memory() (total, available, limit int64) { return 0, 0, 0 }

// descriptorLimit is not known here.
func descriptorLimit() (uint64, bool) { return 0, false }
