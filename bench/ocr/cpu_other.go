//go:build !unix

package main

import "time"

func own() time.Duration { return 0 }
