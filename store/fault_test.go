package store_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/store"
	"github.com/rewardloop/rewardloop/wire"
)

// meddle does something to a store's file behind its back.
func meddle(t *testing.T, path string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	defer db.Close()
	for _, s := range statements {
		_, err := db.ExecContext(t.Context(), s)
		require.NoError(t, err)
	}
}

// number asks a store's file for one.
func number(t *testing.T, path, query string) (n int64) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.QueryRowContext(t.Context(), query).Scan(&n))
	return n
}

func TestABatchIsWrittenOnceWhereOldRowsCannotBeDeletedAfterIt(t *testing.T) {
	t.Parallel()
	s := open(t, store.Config{Age: time.Hour}, "")
	path := s.State().File
	meddle(t, path, "CREATE TRIGGER stuck BEFORE DELETE ON results BEGIN SELECT RAISE(ABORT, 'the disk has a fault'); END")
	rec, _ := kept(t, "a", 1, 1, nil)
	rec.Finished = time.Now().Add(-2 * time.Hour)
	s.Put(rec)
	require.Eventually(t, func() bool { return s.State().Error != "" }, 30*time.Second, 5*time.Millisecond)
	assert.Contains(t, s.State().Error, "the disk has a fault")
	meddle(t, path, "DROP TRIGGER stuck")
	next, _ := kept(t, "a", 1, 2, nil)
	s.Put(next)
	require.Eventually(t, func() bool { return len(results(t, s, store.Query{Text: "a/1/2"})) == 1 }, 30*time.Second, 5*time.Millisecond)
	require.NoError(t, s.Close())
	assert.Equal(t, int64(1), number(t, path, "SELECT count(*) FROM results WHERE id = 'a/1/1'"), "or deleted since")
	assert.Equal(t, int64(2), number(t, path, "SELECT value FROM meta WHERE name = 'written'"))
}

func TestARowThatCannotBeWrittenIsLeftOutAndTheOthersAreNot(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	path := filepath.Join(t.TempDir(), "a.db")
	s, err := store.Open(t.Context(), store.Config{}, store.Options{Path: path, Log: logTo(&said)})
	require.NoError(t, err)
	meddle(t, path, "CREATE TRIGGER picky BEFORE INSERT ON results WHEN new.id = 'a/1/70' BEGIN SELECT RAISE(ABORT, 'not this one'); END")
	for n := range 150 {
		rec, _ := kept(t, "a", 1, n, nil)
		s.Put(rec)
	}
	await(t, s, 149)
	last, _ := kept(t, "b", 1, 1, nil)
	s.Put(last)
	await(t, s, 150)
	assert.Equal(t, uint64(1), s.State().Dropped)
	require.NoError(t, s.Close())
	assert.Contains(t, said.String(), "leaves the record out")
	assert.Equal(t, int64(1), int64(strings.Count(said.String(), "level=WARN")), said.String())
	again, err := store.Open(t.Context(), store.Config{}, store.Options{Path: path, Log: logTo(&said)})
	require.NoError(t, err)
	require.NoError(t, again.Close())
	assert.NotContains(t, said.String(), "ended before", "it is not lost twice over")
}

func TestRewardsOfAnySizeAreKeptAndSummedUp(t *testing.T) {
	t.Parallel()
	s := open(t, store.Config{}, "")
	values := []float64{math.MaxFloat64, math.MaxFloat64, -math.MaxFloat64, -math.MaxFloat64, math.Copysign(0, -1), math.SmallestNonzeroFloat64}
	for round := range 2 { // in two transactions
		for n, v := range values {
			rec, _ := kept(t, "a", 1, 10*round+n, func(sample *rewards.Sample, r *wire.Result) {
				sample.UID = "g"
				r.RewardScore = new(v)
				r.ExtraInfo = map[string]any{"reward/x": v, "reward/y": math.NaN()} // JSON has none: the row says so
			})
			s.Put(rec)
		}
		await(t, s, int64((round+1)*len(values)))
	}
	rows := results(t, s, store.Query{Sort: store.Oldest})
	for n, v := range values {
		assert.Equal(t, math.Float64bits(v), math.Float64bits(*rows[n].Score), "%v", v)
	}
	h, err := s.Reader().History(t.Context(), "a", rewards.Train)
	require.NoError(t, err)
	g, err := s.Reader().Groups(t.Context(), store.Query{Run: new("a")})
	require.NoError(t, err)
	hist, err := s.Reader().Histograms(t.Context(), store.Query{Run: new("a")})
	require.NoError(t, err)
	runs, err := s.Reader().Runs(t.Context())
	require.NoError(t, err)
	for _, answer := range []any{h, g, hist, runs, rows} {
		_, err := json.Marshal(answer)
		require.NoError(t, err)
	}
	require.Len(t, h, 1)
	assert.Equal(t, int64(12), h[0].Scored)
	assert.Equal(t, 4, hist["reward"].Counts[0])
	assert.Equal(t, 4, hist["reward"].Counts[len(hist["reward"].Counts)-1])
}

// Hostile texts, as JSON allows them on the wire.
func hostile() map[string]string {
	return map[string]string{
		"nul": `a\u0000b`, "lone surrogate": `\ud800`, "path": `../../x`, "markup": `<script>alert(1)</script>`, "quote": `'); DROP TABLE results; --`,
		"line ends": "a\\r\\nb,\\\"c\\\"\\n", "formula": `=cmd|' /C calc'!A0`, "right to left": `\u202eabc`, "long": strings.Repeat("x", 400<<10),
	}
}

func TestHostileTextsAreKeptAsTheyAre(t *testing.T) {
	t.Parallel()
	s := open(t, store.Config{}, "")
	want := map[string]string{}
	for name, text := range hostile() {
		var value string
		require.NoError(t, json.Unmarshal([]byte(`"`+text+`"`), &value))
		rec, _ := kept(t, "a", 1, 1, func(sample *rewards.Sample, r *wire.Result) {
			sample.Prompt, sample.Response, sample.DataSource = value, value, name
			if name != "long" {
				sample.ID, sample.UID, r.ID = value, value, value
			}
			r.Details = map[string]any{value: value}
		})
		rec.Run, rec.Reward = value, value
		want[name] = value
		s.Put(rec)
	}
	await(t, s, int64(len(want)))
	for name, value := range want {
		list := results(t, s, store.Query{Run: &value, Reward: &value})
		require.Len(t, list, 1, name)
		row, err := s.Reader().Result(t.Context(), list[0].Key)
		require.NoError(t, err)
		assert.Equal(t, value, row.Run, name)
		assert.Equal(t, value, row.Prompt, name)
		assert.Equal(t, value, row.Response, name)
		assert.Equal(t, map[string]any{value: value}, row.Details, name)
		if name != "long" {
			assert.Equal(t, value, row.ID, name)
			assert.Equal(t, value, row.UID, name)
		}
	}
}

func TestASampleThatIsSentAgainWithOtherMediaIsKeptWithThoseOfItsLastResult(t *testing.T) {
	t.Parallel()
	s := open(t, store.Config{Keep: store.KeepFull}, "")
	for _, size := range []int{8, 16} {
		file := photo(t, size, size, color.White)
		rec, f := kept(t, "a", 1, 1, func(sample *rewards.Sample, _ *wire.Result) {
			sample.Media = []*rewards.Media{{Kind: rewards.Image, Encoding: rewards.JPEG, DType: "U8", Shape: []int{len(file)}, Data: file}}
		})
		s.Media(store.SampleKey{Run: "a", Epoch: 1, ID: rec.Result.ID}, f.Sample().Media, f.Data(), false)
		s.Put(rec)
	}
	await(t, s, 2)
	_, sample, err := s.Reader().Kept(t.Context(), results(t, s, store.Query{Limit: 1})[0].Key)
	require.NoError(t, err)
	assert.Equal(t, photo(t, 16, 16, color.White), sample.Media[0].Data)
}

func TestMediaThatBelongToNoResultAreDeletedBeforeTheFileIsFull(t *testing.T) {
	t.Parallel()
	s := open(t, store.Config{Keep: store.KeepFull, Bytes: 1 << 20}, "")
	_, f := kept(t, "a", 1, 1, nil)
	for n := range 40 {
		s.Media(store.SampleKey{Run: "a", ID: fmt.Sprint(n)}, f.Sample().Media, make([]byte, 100<<10), false)
	}
	for n := range int64(40) { // a batch looks at the size now and then
		rec, _ := kept(t, "a", 1, int(n), nil)
		s.Put(rec)
		require.Eventually(t, func() bool { return s.Latest() > n }, 30*time.Second, time.Millisecond)
		if s.State().Bytes < 1<<20 && n > 20 {
			break
		}
	}
	require.Eventually(t, func() bool { return s.State().Bytes < 1<<20 }, 30*time.Second, 5*time.Millisecond, "%+v", s.State())
	require.NoError(t, s.Close())
	info, err := os.Stat(s.State().File)
	require.NoError(t, err)
	assert.Less(t, info.Size(), int64(2<<20), "the disk has its room back")
}

func TestAFewLargeRowsAreDeletedOneByOne(t *testing.T) {
	t.Parallel()
	const limit, size = 4 << 20, 256 << 10
	s := open(t, store.Config{Keep: store.KeepFull, Bytes: limit}, "")
	for n := range 64 {
		rec, f := kept(t, "a", 1, n, nil)
		s.Media(store.SampleKey{Run: "a", Epoch: 1, ID: rec.Result.ID}, f.Sample().Media, make([]byte, size), false)
		s.Put(rec)
		require.Eventually(t, func() bool { return s.Latest() > int64(n) }, 30*time.Second, time.Millisecond)
	}
	require.NoError(t, s.Close())
	assert.GreaterOrEqual(t, number(t, s.State().File, "SELECT count(*) FROM results"), int64(8), "half of what there is room for")
	assert.LessOrEqual(t, number(t, s.State().File, "SELECT count(*) FROM results"), int64(32), "a batch looks at the size now and then")
	assert.Equal(t, int64(1), number(t, s.State().File, "SELECT count(*) FROM results WHERE id = 'a/1/63'"), "the newest stays")
}

func TestADamagedBlockSpoilsNoRowOfAnother(t *testing.T) {
	t.Parallel()
	s := open(t, store.Config{}, "")
	const rows = 40
	for n := range rows {
		rec, _ := kept(t, "a", 1, n, nil)
		s.Put(rec)
	}
	await(t, s, rows)
	path := s.State().File
	require.Greater(t, number(t, path, "SELECT count(*) FROM blocks"), int64(1))
	spoilt := int(number(t, path, "SELECT last - first + 1 FROM blocks ORDER BY first LIMIT 1"))
	meddle(t, path, "UPDATE blocks SET data = x'00ff' WHERE first = 1")
	for i, row := range results(t, s, store.Query{Sort: store.Oldest}) {
		require.NotNil(t, row.Score)
		if i < spoilt {
			require.NotNil(t, row.Error, i)
			assert.Contains(t, row.Error.Message, "the store's row is damaged: the block of the result is damaged")
			continue
		}
		assert.Nil(t, row.Error, i)
		assert.Equal(t, fmt.Sprint("prompt ", i), row.Prompt)
	}
	meddle(t, path, "DELETE FROM blocks")
	_, _, err := s.Reader().Kept(t.Context(), 1)
	require.ErrorIs(t, err, store.ErrNotFound)
}

func TestAFileOfTheFirstVersionIsReadAndWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.db")
	s := open(t, store.Config{}, path)
	rec, _ := kept(t, "a", 1, 7, nil)
	s.Put(rec)
	await(t, s, 1)
	require.NoError(t, s.Close())
	result, err := wire.EncodeResult(rec.Result)
	require.NoError(t, err)
	meddle(t, path, fmt.Sprintf("UPDATE results SET head = x'%x', result = x'%x'", rec.Header.JSON(), result), "DROP TABLE blocks", "PRAGMA user_version = 1")
	s = open(t, store.Config{}, path)
	again, _ := kept(t, "a", 2, 8, nil)
	s.Put(again)
	await(t, s, 2)
	rows := results(t, s, store.Query{Sort: store.Oldest})
	require.Len(t, rows, 2)
	for i, want := range []string{"prompt 7", "prompt 8"} {
		assert.Nil(t, rows[i].Error)
		assert.Equal(t, want, rows[i].Prompt)
		assert.Len(t, rows[i].Components, 2)
	}
}

func TestLargeSamplesEndTheirBlockSooner(t *testing.T) {
	t.Parallel()
	s := open(t, store.Config{}, "")
	text := strings.Repeat("0123456789", 10_000)
	for n := range 9 {
		rec, _ := kept(t, "a", 1, n, func(sample *rewards.Sample, _ *wire.Result) { sample.Response = text + fmt.Sprint(n) })
		s.Put(rec)
	}
	await(t, s, 9)
	assert.GreaterOrEqual(t, number(t, s.State().File, "SELECT count(*) FROM blocks"), int64(3))
	for n, row := range results(t, s, store.Query{Sort: store.Oldest}) {
		whole, err := s.Reader().Result(t.Context(), row.Key)
		require.NoError(t, err)
		assert.Equal(t, text+fmt.Sprint(n), whole.Response)
	}
}
