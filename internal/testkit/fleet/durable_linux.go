package fleet

import (
	"time"

	"github.com/stretchr/testify/require"
)

// durable are the overrides that make a gateway durable, with a folder of its own.
func (f *Fleet) durable(name string) []string {
	if !f.cfg.Durable {
		return nil
	}
	return []string{"++fabric.durable=true", "++fabric.spool_dir=" + f.file("spool-"+name)}
}

// Scored is how often the scorer has answered for a sample.
func (f *Fleet) Scored(id string) int {
	f.scorer.mu.Lock()
	defer f.scorer.mu.Unlock()
	return f.scorer.ended[id]
}

// Await returns when a condition holds, and fails the test where it does not in time.
func (f *Fleet) Await(what string, holds func() bool) {
	f.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for !holds() {
		select {
		case <-look.C:
		case <-limit.C:
			require.Fail(f.t, "not within "+patience.String()+": "+what)
		}
	}
}

// Answered are the samples whose result has come.
func (r *Run) Answered() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := make([]string, 0, len(r.got))
	for id := range r.got {
		ids = append(ids, id)
	}
	return ids
}

// Acknowledged are the samples that a gateway has answered for.
func (r *Run) Acknowledged() []string {
	var ids []string
	for _, t := range r.taps {
		t.mu.Lock()
		for id := range t.acked {
			ids = append(ids, id)
		}
		t.mu.Unlock()
	}
	return ids
}

// Leave ends the clients for good, whatever they wait for.
func (r *Run) Leave() { r.close() }
