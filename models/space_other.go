//go:build !(darwin || linux)

package models

import "errors"

// FreeSpace returns errors.ErrUnsupported on this system. A full disk is detected by the write that
// fails.
func FreeSpace(string) (int64, error) { return 0, errors.ErrUnsupported }
