package sim_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/sim"
)

// Whatever reads as a trace can be written, measured and drawn.
func FuzzReadTrace(f *testing.F) {
	for _, t := range []sim.Trace{step(), recorded()} {
		var file bytes.Buffer
		require.NoError(f, t.Write(&file))
		f.Add(file.Bytes())
	}
	f.Add([]byte(`{"servers":1,"spans":[{"id":"a","generated_s":1e12,"attempts":[{"started_s":1e12,"ended_s":1e12}],"stages_s":{"":0}}]}`))
	f.Fuzz(func(t *testing.T, file []byte) {
		trace, err := sim.ReadTrace(bytes.NewReader(file))
		if err != nil {
			require.ErrorIs(t, err, sim.ErrTrace)
			return
		}
		trace.Servers = min(trace.Servers, 1000) // its simulation takes the memory of its servers
		require.NoError(t, trace.Write(&bytes.Buffer{}))
		if rep, err := sim.Measure(trace); err == nil {
			_, err = json.Marshal(rep)
			require.NoError(t, err, "a figure that JSON cannot say")
			_ = rep.String() + rep.Details()
		}
		var drawn bytes.Buffer
		if err := trace.WriteChrome(&drawn); err == nil {
			require.True(t, json.Valid(drawn.Bytes()))
		} else {
			require.ErrorIs(t, err, sim.ErrTrace)
		}
	})
}
