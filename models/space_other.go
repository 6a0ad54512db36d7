//go:build !(darwin || linux)

package models

import "errors"

// FreeSpace is not known here: a full disk is noticed by the write that fails.
func FreeSpace(string) (int64, error) { return 0, errors.ErrUnsupported }
