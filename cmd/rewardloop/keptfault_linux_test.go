package main

import (
	"context"
	"database/sql"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
)

// keeping starts a server with a reward of texts that keeps results in a file.
func keeping(t *testing.T, file string) (*process, string) {
	t.Helper()
	return serving(t, "reward.custom_reward_function.path=builtin://length", "store.path="+file)
}

// scoreTexts scores so many texts.
func scoreTexts(t *testing.T, c *client.Client, name string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	futures := make([]*client.Future, n)
	for i := range futures {
		f, err := c.Submit(ctx, &rewards.Sample{ID: name + strconv.Itoa(i), Prompt: "a prompt", Response: strings.Repeat("words ", 100)}, 0)
		require.NoError(t, err)
		futures[i] = f
	}
	for _, f := range futures {
		res, err := f.Wait(ctx)
		require.NoError(t, err)
		require.Equal(t, rewards.Scored, res.Outcome)
	}
}

// metric reads one of a server's metrics; -1: it has none of the name.
func metric(t *testing.T, addr, name string) float64 {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/metrics", http.NoBody)
	require.NoError(t, err)
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindSubmatch(body)
	if m == nil {
		return -1
	}
	v, err := strconv.ParseFloat(string(m[1]), 64)
	require.NoError(t, err)
	return v
}

// keptRows counts the results in a file.
func keptRows(t *testing.T, file string) (rows int) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	defer db.Close()
	if db.QueryRowContext(t.Context(), "SELECT count(*) FROM results").Scan(&rows) != nil {
		return 0
	}
	return rows
}

func TestAStoreOnAFullDiskCostsNoResultAndComesBack(t *testing.T) {
	t.Parallel()
	dir := SmallDisk(t, 2<<20)
	file, others := filepath.Join(dir, "kept.db"), filepath.Join(dir, "others")
	p, addr := keeping(t, file)
	p.stderr.await(t, "results are kept")
	c := dial(t, addr)
	scoreTexts(t, c, "before", 20)
	Fill(t, others)
	const said = "the store cannot write results"
	for n := 0; !strings.Contains(p.stderr.String(), said); n++ {
		require.Less(t, n, 100)
		scoreTexts(t, c, "full"+strconv.Itoa(n)+"/", 500)
		Fill(t, others)
	}
	scoreTexts(t, c, "more", 500)
	assert.Equal(t, 1, strings.Count(p.stderr.String(), said))
	assert.Positive(t, metric(t, addr, `rewardloop_store_writes_failed_total{reason="full"}`), p.stderr)
	require.NoError(t, os.Remove(others))
	p.stderr.await(t, "the store has resumed writing results")
	rows := keptRows(t, file)
	scoreTexts(t, c, "after", 20)
	require.Eventually(t, func() bool { return keptRows(t, file) > rows || metric(t, addr, "rewardloop_store_queue_results") > 0 }, 30*time.Second, 20*time.Millisecond)
	assert.Zero(t, metric(t, addr, `rewardloop_store_dropped_total{what="result"}`), "they waited")
}

// readOnly is a folder that nothing can be written into until it is mended.
func readOnly(t *testing.T) (dir string, mend func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		dir = t.TempDir()
		require.NoError(t, os.Chmod(dir, 0o500))                        //nolint:gosec // a folder
		return dir, func() { require.NoError(t, os.Chmod(dir, 0o700)) } //nolint:gosec // a folder
	}
	dir = SmallDisk(t, 8<<20)
	require.NoError(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	return dir, func() { require.NoError(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "")) }
}

func TestAStoreInAFolderThatCannotBeWrittenCostsNoResultAndIsTriedAgain(t *testing.T) {
	t.Parallel()
	dir, mend := readOnly(t)
	file := filepath.Join(dir, "kept.db")
	p, addr := keeping(t, file)
	p.stderr.await(t, "results are not kept, because the store cannot be opened")
	assert.Contains(t, p.stderr.String(), file)
	c := dial(t, addr)
	scoreTexts(t, c, "before", 20)
	mend()
	p.stderr.await(t, "results are kept")
	scoreTexts(t, c, "after", 20)
	require.Eventually(t, func() bool { return keptRows(t, file) == 20 }, 30*time.Second, 20*time.Millisecond)
	assert.Equal(t, 1, strings.Count(p.stderr.String(), "results are not kept"))
}

func TestASecondServerOnAStoreServesAndTakesItOverFromTheFirst(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "kept.db")
	first, firstAddr := keeping(t, file)
	first.stderr.await(t, "results are kept")
	second, addr := keeping(t, file)
	second.stderr.await(t, "results are not kept, because the store cannot be opened")
	assert.Contains(t, second.stderr.String(), "another process is writing to the file")
	scoreTexts(t, dial(t, firstAddr), "first", 10)
	c := dial(t, addr)
	scoreTexts(t, c, "second", 10)
	require.NoError(t, first.Process.Kill())
	<-first.exited
	second.stderr.await(t, "results are kept")
	scoreTexts(t, c, "later", 10)
	require.NoError(t, second.Process.Signal(os.Interrupt))
	require.Equal(t, exitOK, second.code(t))
	rows := keptRows(t, file)
	assert.GreaterOrEqual(t, rows, 10)
	assert.LessOrEqual(t, rows, 20)
	assert.Equal(t, 1, strings.Count(second.stderr.String(), "results are not kept"))
}

func TestAFileThatIsNoStoreIsLeftAsItIs(t *testing.T) {
	t.Parallel()
	garbage := []byte(strings.Repeat("it is a diary. ", 1000))
	file := put(t, t.TempDir(), "diary.txt", garbage)
	p, addr := keeping(t, file)
	p.stderr.await(t, "results are not kept, because the store cannot be opened")
	scoreTexts(t, dial(t, addr), "one", 10)
	now, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, garbage, now)
}
