//go:build !(darwin || linux)

package models

import "errors"

// freeSpace is not known here; a full disk ends the download.
func freeSpace(string) (int64, error) { return 0, errors.ErrUnsupported }
