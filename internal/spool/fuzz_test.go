package spool_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/spool"
)

// FuzzScan reads any bytes as a segment: every byte is in a record or passed over, and
// nothing else happens.
func FuzzScan(f *testing.F) {
	whole := spool.Segment(
		spool.Record{Kind: spool.Run, Run: "r", Epoch: 1},
		spool.Record{Kind: spool.Sample, Run: "r", Epoch: 1, ID: "x", Meta: []byte("{}"), Body: []byte("frame")},
		spool.Record{Kind: spool.Drop, Of: spool.Sample, Run: "r", Epoch: 1, ID: "x"},
	)
	f.Add(whole)
	f.Add(whole[:len(whole)-3])
	f.Add(append(append([]byte(nil), whole...), whole[24:]...))
	f.Fuzz(func(t *testing.T, b []byte) {
		found, skipped, err := spool.Scan(bytes.NewReader(b), int64(len(b)))
		if err == nil {
			require.EqualValues(t, len(b), 24+found+skipped)
		}
	})
}

// FuzzRecord damages a segment at one place: no record is read that was not written.
func FuzzRecord(f *testing.F) {
	f.Add("run", uint64(3), "id", []byte("meta"), []byte("body"), uint16(40), byte(1))
	f.Add("", uint64(0), "", []byte{}, []byte{}, uint16(0), byte(0))
	f.Fuzz(func(t *testing.T, run string, epoch uint64, id string, meta, body []byte, at uint16, flip byte) {
		if len(run) > spool.MaxNameBytes || len(id) > spool.MaxNameBytes || len(meta) > spool.MaxMetaBytes {
			return
		}
		b := spool.Segment(
			spool.Record{Kind: spool.Sample, Run: run, Epoch: epoch, ID: id, Meta: meta, Body: body},
			spool.Record{Kind: spool.Sample, Run: run, Epoch: epoch, ID: id + "2", Meta: meta, Body: body},
		)
		if i := 24 + int(at); i < len(b) {
			b[i] ^= flip
		}
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "0000000000000001.spool"), b, 0o600))
		s, err := spool.Open(spool.Config{Dir: dir})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		n := 0
		require.NoError(t, s.Each(func(k *spool.Kept) error {
			got, err := k.Bytes()
			if err != nil || k.Kind == spool.Run {
				return err
			}
			n++
			if k.Run != run || k.Epoch != epoch || (k.ID != id && k.ID != id+"2") || !bytes.Equal(k.Meta, meta) || !bytes.Equal(got, body) {
				t.Errorf("read %q/%d/%q %q %q", k.Run, k.Epoch, k.ID, k.Meta, got)
			}
			return nil
		}))
		require.GreaterOrEqual(t, n, 1, "one place was damaged")
	})
}
