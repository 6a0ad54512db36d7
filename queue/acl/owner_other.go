//go:build !unix

package acl

import "os"

// othersMay cannot be told from a file's mode here.
func othersMay(os.FileInfo) bool { return false }
