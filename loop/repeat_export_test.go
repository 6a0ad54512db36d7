package loop

import (
	"context"
	"time"
)

// Round does all that is due of a manager that was not started, and returns how long
// nothing is.
func (m *Manager) Round(ctx context.Context) time.Duration { return m.round(ctx) }

// Sweep forgets what is too old.
func (m *Manager) Sweep() { m.sweep(time.Now()) }
