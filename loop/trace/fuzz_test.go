package trace_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop/trace"
)

// Whatever reads as a trace can be written, measured and drawn.
func FuzzReadTrace(f *testing.F) {
	for _, t := range []trace.Trace{oneStep(), recorded()} {
		var file bytes.Buffer
		require.NoError(f, t.Write(&file))
		f.Add(file.Bytes())
	}
	f.Add([]byte(`{"servers":1,"spans":[{"id":"a","generated_s":1e12,"attempts":[{"started_s":1e12,"ended_s":1e12}],"stages_s":{"":0}}]}`))
	f.Fuzz(func(t *testing.T, file []byte) {
		rec, err := trace.ReadTrace(bytes.NewReader(file))
		if err != nil {
			require.ErrorIs(t, err, trace.ErrTrace)
			return
		}
		rec.Servers = min(rec.Servers, 1000) // its simulation takes the memory of its servers
		require.NoError(t, rec.Write(&bytes.Buffer{}))
		if rep, err := trace.Measure(rec); err == nil {
			_, err = json.Marshal(rep)
			require.NoError(t, err, "a figure that JSON cannot say")
			_ = rep.String() + rep.Details()
		}
		var drawn bytes.Buffer
		if err := rec.WriteChrome(&drawn); err == nil {
			require.True(t, json.Valid(drawn.Bytes()))
		} else {
			require.ErrorIs(t, err, trace.ErrTrace)
		}
	})
}
