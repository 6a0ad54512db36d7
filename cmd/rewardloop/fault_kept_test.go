//go:build linux && fault

package main

import "testing"

func TestNoFaultOfFiftyKillsHarmsAStore(t *testing.T) {
	t.Parallel()
	keptThroughKills(t, 50)
}
