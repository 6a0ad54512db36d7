package wire_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/wire"
)

func fullWorker() wire.WorkerInfo {
	return wire.WorkerInfo{
		ID: "w\"1", Busy: 3, State: wire.WorkerReady,
		Profiles: []wire.ProfileInfo{
			{Name: "ocr", Queue: "ocr__3fa9", Capacity: 256, Narrow: 2, Used: map[string]int{"gw": 7}, State: "waiting", Waits: "engine e"}, {Queue: "_", Capacity: 1},
		},
		Host: "höst", Devices: []string{"cuda:0"}, Models: []string{"m"}, Version: "v1", Scored: 1 << 40, Failed: 2,
		Started: time.Date(2031, 2, 3, 4, 5, 6, 7, time.UTC), Seen: time.Date(2031, 2, 3, 4, 5, 6, 8, time.UTC),
	}
}

func TestAWorkersWordKeepsEveryField(t *testing.T) {
	t.Parallel()
	full := fullWorker()
	for _, v := range []reflect.Value{reflect.ValueOf(full), reflect.ValueOf(full.Profiles[0])} {
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; name != "Rev" {
				require.False(t, v.Field(i).IsZero(), "this test forgets %s", name)
			}
		}
	}
	for _, info := range []wire.WorkerInfo{full, {ID: "w"}} {
		data, err := json.Marshal(info)
		require.NoError(t, err)
		for _, before := range []*wire.WorkerInfo{nil, {}, &full} {
			back, err := wire.DecodeWorkerInfo(data, before)
			require.NoError(t, err)
			assert.Equal(t, info, back)
		}
	}
}

func TestAWorkersWordIsReadWithTheStringsOfTheOneBefore(t *testing.T) {
	t.Parallel()
	before := fullWorker()
	data, err := json.Marshal(before)
	require.NoError(t, err)
	got, err := wire.DecodeWorkerInfo(data, &before)
	require.NoError(t, err)
	assert.Same(t, unsafe.StringData(before.Profiles[0].Queue), unsafe.StringData(got.Profiles[0].Queue))
	other := fullWorker()
	other.Profiles = other.Profiles[1:]
	other.ID = "another"
	got, err = wire.DecodeWorkerInfo(data, &other)
	require.NoError(t, err)
	assert.Equal(t, before, got)
}

func TestAWorkersWordThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		``, `null`, `{}x`, `{"id":1}`, `{"id":"a","id":"b"}`, `{"busy":"1"}`, `{"busy":-1}`, `{"busy":1e99}`, `{"busy":4294967296}`, `{"scored":-1}`, `{"devices":[1]}`,
		`{"profiles":[{"name":1}]}`, `{"profiles":{}}`, `{"profiles":[{"capacity":-1}]}`, `{"started":"tomorrow"}`, `{"id":"` + "\xff" + `"}`,
	} {
		_, err := wire.DecodeWorkerInfo([]byte(text), nil)
		require.Error(t, err, text)
	}
	_, err := wire.DecodeWorkerInfo([]byte(`{"id":"`+strings.Repeat("x", 1<<20)+`"}`), nil)
	require.ErrorIs(t, err, wire.ErrTooLarge)
	got, err := wire.DecodeWorkerInfo([]byte(`{"later":{"x":[1]},"id":"a","profiles":[{"later":1,"queue":"q"}]}`), nil)
	require.NoError(t, err)
	assert.Equal(t, wire.WorkerInfo{ID: "a", Profiles: []wire.ProfileInfo{{Queue: "q"}}}, got, "names of a later release are passed over")
}

func TestWordsThatDifferInCountersResembleEachOther(t *testing.T) {
	t.Parallel()
	one, other := fullWorker(), fullWorker()
	other.Busy, other.Scored, other.Failed, other.Seen, other.Rev = 0, 0, 0, time.Now(), 9
	other.Profiles[0].Used = nil
	require.True(t, one.Resembles(&other))
	for name, change := range map[string]func(w *wire.WorkerInfo){
		"id": func(w *wire.WorkerInfo) { w.ID = "x" }, "state": func(w *wire.WorkerInfo) { w.State = wire.WorkerSick },
		"a profile less": func(w *wire.WorkerInfo) { w.Profiles = w.Profiles[1:] },
		"a capacity":     func(w *wire.WorkerInfo) { w.Profiles[1].Capacity++ }, "a queue": func(w *wire.WorkerInfo) { w.Profiles[1].Queue = "x" },
		"what a profile waits for": func(w *wire.WorkerInfo) { w.Profiles[0].Waits = "" }, "devices": func(w *wire.WorkerInfo) { w.Devices = nil },
		"models": func(w *wire.WorkerInfo) { w.Models = nil }, "host": func(w *wire.WorkerInfo) { w.Host = "" }, "version": func(w *wire.WorkerInfo) { w.Version = "" },
		"its life": func(w *wire.WorkerInfo) { w.Started = w.Started.Add(1) },
	} {
		w := fullWorker()
		change(&w)
		require.False(t, one.Resembles(&w), name)
	}
}

// busyWorker serves a hundred profiles.
func busyWorker(b *testing.B) (wire.WorkerInfo, []byte) {
	b.Helper()
	w := wire.WorkerInfo{ID: "node7-4711-0", State: wire.WorkerReady, Started: time.Now().Round(0)}
	for i := range 100 {
		name := fmt.Sprintf("profile-%d", i)
		w.Profiles = append(w.Profiles, wire.ProfileInfo{Name: name, Queue: wire.QueueName(name, ""), Capacity: 256, Narrow: 256, Used: map[string]int{"gw": i}})
	}
	data, err := json.Marshal(w)
	if err != nil {
		b.Fatal(err)
	}
	return w, data
}

func BenchmarkDecodeWorkerInfo(b *testing.B) {
	before, data := busyWorker(b)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.DecodeWorkerInfo(data, &before); err != nil {
			b.Fatal(err)
		}
	}
}
