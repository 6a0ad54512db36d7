//go:build nvml && cgo

package cards

import (
	"context"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// AskNVML lists the cards of a library that a test made.
func AskNVML(ctx context.Context, limit time.Duration, lib nvml.Interface) (out []Card, notes []string, err error) {
	all, notes, err := ask(ctx, limit, lib)
	for _, g := range all {
		out = append(out, g.devices()...)
	}
	return out, notes, err
}
