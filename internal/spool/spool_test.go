package spool_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/spool"
)

func open(t *testing.T, cfg spool.Config) *spool.Spool {
	t.Helper()
	s, err := spool.Open(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func sample(run string, epoch uint64, id string, body []byte) spool.Record {
	return spool.Record{Kind: spool.Sample, Run: run, Epoch: epoch, ID: id, Meta: []byte("of " + id), Body: body}
}

func result(run string, epoch uint64, id string) spool.Record {
	return spool.Record{Kind: spool.Result, Run: run, Epoch: epoch, ID: id, Fill: func() []byte { return []byte("result of " + id) }}
}

func drop(of spool.Kind, run string, epoch uint64, id string) spool.Record {
	return spool.Record{Kind: spool.Drop, Of: of, Run: run, Epoch: epoch, ID: id}
}

// contents lists what is kept, as "kind run/epoch/id meta:body".
func contents(t *testing.T, s *spool.Spool) []string {
	t.Helper()
	var all []string
	require.NoError(t, s.Each(func(k *spool.Kept) error {
		b, err := k.Bytes()
		if err != nil {
			return err
		}
		all = append(all, fmt.Sprintf("%v %s/%d/%s %s:%s", k.Kind, k.Run, k.Epoch, k.ID, k.Meta, b))
		return nil
	}))
	return all
}

// image copies a folder as it is: what a process that is killed now leaves behind.
func image(t *testing.T, s *spool.Spool, dir string) string {
	t.Helper()
	to := t.TempDir()
	s.Still(func() { require.NoError(t, os.CopyFS(filepath.Join(to, "spool"), os.DirFS(dir))) })
	return filepath.Join(to, "spool")
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.spool"))
	require.NoError(t, err)
	return names
}

func TestWhatWasPutIsThereInTheNextLifeInTheOrderItCame(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, spool.Config{Dir: dir})
	s.Later(spool.Record{Kind: spool.Run, Run: "r", Epoch: 7})
	for _, id := range []string{"b", "a", "c", "d"} {
		require.NoError(t, s.Put(sample("r", 7, id, []byte("bytes of "+id))))
	}
	s.Later(result("r", 7, "a"))
	s.Later(spool.Record{Kind: spool.Member, Run: "r", Epoch: 7, ID: "a", Meta: []byte("m")})
	s.Later(drop(spool.Sample, "r", 7, "d"))
	require.NoError(t, s.Flush())
	want := []string{"run r/7/ :", "member r/7/a m:", "result r/7/a :result of a", "sample r/7/b of b:bytes of b", "sample r/7/c of c:bytes of c"}
	assert.Equal(t, want, contents(t, s))
	killed := image(t, s, dir)
	for range 3 { // no life changes what is kept
		again := open(t, spool.Config{Dir: killed})
		assert.Equal(t, want, contents(t, again))
		require.NoError(t, again.Close())
	}
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Put(sample("r", 7, "e", nil)), spool.ErrClosed)
}

func TestWhatIsQueuedIsWrittenBeforeTheNextPut(t *testing.T) {
	t.Parallel()
	s := open(t, spool.Config{Dir: t.TempDir()})
	for i := range 200 { // the same id again and again: the last one counts, whoever wrote the others
		require.NoError(t, s.Put(sample("r", 1, "x", []byte{byte(i)})))
		s.Later(result("r", 1, "x"))
		s.Later(drop(spool.Result, "r", 1, "x"))
	}
	require.NoError(t, s.Put(sample("r", 1, "x", []byte("last"))))
	assert.Equal(t, []string{"run r/1/ :", "sample r/1/x of x:last"}, contents(t, s))
}

func TestALaterEpochEndsTheEarlierOnes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, spool.Config{Dir: dir})
	require.NoError(t, s.Put(sample("r", 1, "x", nil)))
	require.NoError(t, s.Put(sample("other", 1, "x", nil)))
	s.Later(spool.Record{Kind: spool.Run, Run: "r", Epoch: 2})
	require.NoError(t, s.Put(sample("r", 1, "late", nil)))
	require.NoError(t, s.Put(sample("r", 2, "y", nil)))
	s.Later(spool.Record{Kind: spool.Gone, Run: "other", Epoch: 1})
	require.NoError(t, s.Put(sample("r", 3, "z", nil))) // says itself that it is of another epoch
	want := []string{"run r/3/ :", "sample r/3/z of z:"}
	assert.Equal(t, want, contents(t, s))
	assert.Equal(t, want, contents(t, open(t, spool.Config{Dir: image(t, s, dir)})))
}

func TestOneFolderIsOneProcesss(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, spool.Config{Dir: dir})
	_, err := spool.Open(spool.Config{Dir: dir})
	require.ErrorIs(t, err, spool.ErrInUse)
	require.ErrorContains(t, err, "a folder of its own")
	require.NoError(t, s.Close())
	open(t, spool.Config{Dir: dir})
}

func TestAHalfWrittenRecordIsPassedOver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, spool.Config{Dir: dir})
	require.NoError(t, s.Put(sample("r", 1, "first", []byte("whole"))))
	whole := s.Stats().Bytes
	require.NoError(t, s.Put(sample("r", 1, "second", bytes.Repeat([]byte("x"), 5000))))
	end := s.Stats().Bytes
	for cut := whole; cut < end; cut += 97 {
		killed := image(t, s, dir)
		require.NoError(t, os.Truncate(files(t, killed)[0], cut))
		again := open(t, spool.Config{Dir: killed})
		require.Equal(t, []string{"run r/1/ :", "sample r/1/first of first:whole"}, contents(t, again), "cut at %d", cut)
		if cut > whole {
			require.EqualValues(t, 1, again.Stats().Skipped)
		}
		require.NoError(t, again.Put(sample("r", 1, "third", nil)))
		require.NoError(t, again.Close())
	}
}

func TestDamageHurtsNoOtherRecord(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, spool.Config{Dir: dir})
	var ends []int64
	for _, id := range []string{"a", "b", "c"} {
		require.NoError(t, s.Put(sample("r", 1, id, []byte(strings.Repeat(id, 3000)))))
		ends = append(ends, s.Stats().Bytes)
	}
	for name, at := range map[string]int64{"mark": ends[0], "length": ends[0] + 20, "names": ends[0] + 53, "body": ends[1] - 5} {
		killed := image(t, s, dir)
		b, err := os.ReadFile(files(t, killed)[0])
		require.NoError(t, err)
		b[at] ^= 0x10
		require.NoError(t, os.WriteFile(files(t, killed)[0], b, 0o600))
		again := open(t, spool.Config{Dir: killed})
		var got []string
		require.NoError(t, again.Each(func(k *spool.Kept) error {
			if _, err := k.Bytes(); err != nil {
				return err
			}
			if k.Kind == spool.Sample {
				got = append(got, k.ID)
			}
			return nil
		}), name)
		assert.Equal(t, []string{"a", "c"}, got, name)
		assert.EqualValues(t, 1, again.Stats().Skipped, name)
	}
	killed := image(t, s, dir)
	require.NoError(t, os.WriteFile(files(t, killed)[0], []byte("rlspo"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(killed, "notes.txt"), []byte("a stranger's"), 0o600))
	again := open(t, spool.Config{Dir: killed})
	assert.Empty(t, contents(t, again))
	assert.EqualValues(t, 1, again.Stats().Skipped)
}

// A client knows the format, but not the mark of the segment that its bytes lie in.
func TestAFrameThatLooksLikeARecordIsNone(t *testing.T) {
	t.Parallel()
	forged := t.TempDir()
	f := open(t, spool.Config{Dir: forged})
	require.NoError(t, f.Put(sample("r", 1, "forged", []byte("never sent"))))
	evil, err := os.ReadFile(files(t, forged)[0])
	require.NoError(t, err)

	dir := t.TempDir()
	s := open(t, spool.Config{Dir: dir})
	require.NoError(t, s.Put(sample("r", 1, "evil", evil)))
	killed := image(t, s, dir)
	b, err := os.ReadFile(files(t, killed)[0])
	require.NoError(t, err)
	b[30] ^= 1 // the record's head, so that what follows is searched
	require.NoError(t, os.WriteFile(files(t, killed)[0], b, 0o600))
	again := open(t, spool.Config{Dir: killed})
	assert.Empty(t, contents(t, again))
}

func TestASegmentOfAnotherReleaseIsNotPassedOver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "0000000000000001.spool"), spool.HeadOfVersion(2), 0o600))
	_, err := spool.Open(spool.Config{Dir: dir})
	require.ErrorIs(t, err, spool.ErrVersion)
	_, err = spool.Open(spool.Config{Dir: dir})
	require.ErrorIs(t, err, spool.ErrVersion, "the folder was given back")
}

func TestASampleBeyondTheBoundIsRefusedAndRoomComesBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, spool.Config{Dir: dir, MaxBytes: 1 << 20})
	body := make([]byte, 50_000)
	n := 0
	for ; ; n++ {
		if err := s.Put(sample("r", 1, fmt.Sprint(n), body)); err != nil {
			require.ErrorIs(t, err, spool.ErrFull)
			break
		}
	}
	assert.Greater(t, n, 15)
	s.Later(result("r", 1, "0")) // is written all the same
	require.NoError(t, s.Flush())
	assert.EqualValues(t, 1, s.Stats().Refused)
	for i := range n / 2 { // every second one, so that no segment is free by itself
		s.Later(result("r", 1, fmt.Sprint(2*i)))
		s.Later(drop(spool.Result, "r", 1, fmt.Sprint(2*i)))
	}
	for i := range n / 4 {
		require.NoError(t, s.Put(sample("r", 1, fmt.Sprint("new", i), body)))
	}
	assert.LessOrEqual(t, s.Stats().Bytes, int64(1<<20)+10_000)
	assert.Equal(t, contents(t, s), contents(t, open(t, spool.Config{Dir: image(t, s, dir)})))
}

// The files follow what is live, not the history, although a few records stay for ever.
func TestFilesFollowWhatIsKept(t *testing.T) {
	t.Parallel()
	const segment = 16 << 10
	dir := t.TempDir()
	s := open(t, spool.Config{Dir: dir, MaxBytes: 1 << 30, SegmentBytes: segment})
	body := make([]byte, 1000)
	for i := range 3000 {
		id := fmt.Sprint(i)
		require.NoError(t, s.Put(sample("r", 1, id, body)))
		if i%500 == 0 {
			continue // stays
		}
		s.Later(result("r", 1, id))
		s.Later(drop(spool.Result, "r", 1, id))
	}
	require.NoError(t, s.Flush())
	s.Tidy()
	st := s.Stats()
	assert.Equal(t, 6, st.Records, "%+v", st)
	assert.LessOrEqual(t, st.Bytes, 2*st.Live+6*segment)
	assert.Equal(t, contents(t, s), contents(t, open(t, spool.Config{Dir: image(t, s, dir)})))
}

// A model says what is live; killed at any moment, the folder says the same.
func TestAnyHistoryIsReadBackAsItWas(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		dir := t.TempDir()
		cfg := spool.Config{Dir: dir, SegmentBytes: int64(500 + rng.IntN(4000)), MaxBytes: 1 << 30}
		s, err := spool.Open(cfg)
		require.NoError(t, err)
		epochs := map[string]uint64{"a": 1, "b": 1}
		for range 400 {
			run := string("ab"[rng.IntN(2)])
			e, id := epochs[run], fmt.Sprint(rng.IntN(20))
			switch rng.IntN(12) {
			case 0, 1, 2, 3:
				require.NoError(t, s.Put(sample(run, e, id, bytes.Repeat([]byte("x"), rng.IntN(600)))))
			case 4, 5, 6:
				s.Later(result(run, e, id))
			case 7, 8, 9:
				s.Later(drop(spool.Kind(2+rng.IntN(3)), run, e, id))
			case 10:
				s.Later(spool.Record{Kind: spool.Member, Run: run, Epoch: e, ID: id})
			case 11:
				if rng.IntN(10) == 0 {
					epochs[run]++
					s.Later(spool.Record{Kind: spool.Run, Run: run, Epoch: epochs[run]})
				} else if rng.IntN(20) == 0 {
					s.Later(spool.Record{Kind: spool.Gone, Run: run, Epoch: e})
				}
			}
			if rng.IntN(60) > 0 {
				continue
			}
			require.NoError(t, s.Flush())
			if rng.IntN(2) == 0 {
				s.Tidy()
			}
			want, live := contents(t, s), s.Stats().Live
			if rng.IntN(3) == 0 { // in order
				require.NoError(t, s.Close())
			} else {
				cfg.Dir = image(t, s, cfg.Dir)
				require.NoError(t, s.Close())
			}
			s, err = spool.Open(cfg)
			require.NoError(t, err)
			require.Equal(t, want, contents(t, s), "seed %d", seed)
			require.Equal(t, live, s.Stats().Live, "seed %d", seed)
			require.Zero(t, s.Stats().Skipped)
		}
		require.NoError(t, s.Close())
	}
}

func TestManyMayWriteAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, spool.Config{Dir: dir, SegmentBytes: 100_000, MaxBytes: 1 << 30})
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 100 {
				id := fmt.Sprintf("%d-%d", w, i)
				if err := s.Put(sample("r", 1, id, bytes.Repeat([]byte{byte(w)}, 2000))); err != nil {
					t.Errorf("sample %s: %v", id, err)
					return
				}
				if i%10 > 0 {
					s.Later(result("r", 1, id))
					s.Later(drop(spool.Result, "r", 1, id))
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, s.Flush())
	all := contents(t, s)
	assert.Len(t, all, 1+80)
	assert.Equal(t, all, contents(t, open(t, spool.Config{Dir: image(t, s, dir)})))
}

// A disk that takes nothing refuses samples; what is queued is written once it takes
// something again.
func TestAFolderThatCannotBeWrittenRefusesAndRecovers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, spool.Config{Dir: dir, SegmentBytes: 1000})
	require.NoError(t, s.Put(sample("r", 1, "x", make([]byte, 2000))))
	away := filepath.Join(filepath.Dir(dir), filepath.Base(dir)+"-away")
	require.NoError(t, os.Rename(dir, away)) // the next segment cannot be made
	require.Error(t, s.Put(sample("r", 1, "y", make([]byte, 2000))))
	s.Later(result("r", 1, "x"))
	require.Error(t, s.Flush())
	assert.Positive(t, s.Stats().Failed)
	require.NoError(t, os.Rename(away, dir))
	require.NoError(t, s.Flush())
	require.NoError(t, s.Put(sample("r", 1, "z", nil)))
	want := []string{"run r/1/ :", "result r/1/x :result of x", "sample r/1/z of z:"}
	assert.Equal(t, want, contents(t, s))
	assert.Equal(t, want, contents(t, open(t, spool.Config{Dir: image(t, s, dir)})))
}

func TestConfigSaysEverythingThatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := spool.Open(spool.Config{MaxBytes: -1, SegmentBytes: -1})
	require.ErrorContains(t, err, "a folder is needed")
	require.ErrorContains(t, err, "must be positive")
	s := open(t, spool.Config{Dir: t.TempDir()})
	require.Error(t, s.Put(spool.Record{}))
	require.Error(t, s.Put(spool.Record{Kind: spool.Sample, ID: strings.Repeat("x", 1<<16)}))
	assert.Equal(t, "drop", spool.Drop.String())
	assert.Equal(t, "kind 99", spool.Kind(99).String())
}
