package main

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
)

func TestAStoreWhoseServerIsKilledTenTimesLosesTheLastBatchesAndSaysHowMany(t *testing.T) {
	t.Parallel()
	keptThroughKills(t, 10)
}

// killLanes is how many samples are under way at a time in keptThroughKills.
const killLanes = 64

// had are the ids of the results that clients have got, in order.
type had struct {
	mu   sync.Mutex
	ids  []string      // guarded by mu
	more chan struct{} // capacity 1
}

func (h *had) add(id string) {
	h.mu.Lock()
	h.ids = append(h.ids, id)
	h.mu.Unlock()
	select {
	case h.more <- struct{}{}:
	default:
	}
}

func (h *had) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clip(h.ids)
}

// keptThroughKills kills a server while samples are scored, again and again, each process on the file of the last one. After each of
// them the file is whole; it has all results but for the last ones of that process; and the next process says how many those are.
//
// The clients have got a few results that were never taken, because a process was killed in between, and the store has taken a few that
// they have not got: not more each time than are under way.
func keptThroughKills(t *testing.T, kills int) {
	t.Helper()
	addr, file := freePort(t), filepath.Join(t.TempDir(), "kept.db")
	serve := func() *process {
		p := start(t, "", nil, nil, "serve", "--listen", addr, "reward.custom_reward_function.path=builtin://length", "store.path="+file)
		p.stderr.await(t, "results are kept")
		p.stderr.await(t, "msg=serving")
		return p
	}
	server := serve()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, client.Config{URL: "ws://" + addr, Run: "kills", ReconnectFor: time.Minute})
	require.NoError(t, err)
	got := &had{more: make(chan struct{}, 1)}
	var load sync.WaitGroup
	var next atomic.Int64
	stop := make(chan struct{})
	for range killLanes {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				n := next.Add(1)
				f, err := c.Submit(ctx, &rewards.Sample{ID: strconv.FormatInt(n, 10), Step: n / 500, Prompt: "a prompt", Response: "some words"}, 0)
				if err == nil {
					_, err = f.Wait(ctx)
				}
				if err != nil {
					t.Errorf("sample %d: %v", n, err)
					return
				}
				got.add(f.ID)
			}
		})
	}
	said := regexp.MustCompile(`the store lacks results[^"]*" results=(\d+)`)
	lost, begin, without := 0, 0, 0
	stored := map[string]bool{}
	for k := 1; k <= kills; k++ {
		until := begin + 50 + rand.IntN(4000) //nolint:gosec // any moment
		for len(got.all()) < until {
			select {
			case <-got.more:
			case <-ctx.Done():
				t.Fatalf("%d results of %d, kill %d", len(got.all()), until, k)
			}
		}
		require.NoError(t, server.Process.Kill())
		<-server.exited
		life := got.all()[begin:] // what is on its way comes late, and counts as the next one's
		begin += len(life)
		rows := readKept(t, file, stored)
		server = serve()
		now := 0
		if m := said.FindStringSubmatch(server.stderr.String()); m != nil {
			now, err = strconv.Atoi(m[1])
			require.NoError(t, err)
		}
		lost += now
		gone := 0
		for i, id := range life {
			if !stored[id] {
				gone++
				if i >= killLanes { // those before may have been on their way from the process before
					require.LessOrEqual(t, len(life)-i, now+2*killLanes, "kill %d: only the last results of a process are lost", k)
				}
			}
		}
		without += gone
		taken := rows + lost
		t.Logf("kill %d: %d results had, %d rows, %d lost now and %d in all", k, begin, rows, now, lost)
		assert.LessOrEqual(t, gone, now+2*killLanes, "what is missing was said, but for those on their way at either end of a life")
		assert.LessOrEqual(t, begin, taken+k*killLanes)
		assert.LessOrEqual(t, taken, begin+k*killLanes)
	}
	close(stop)
	load.Wait()
	require.NoError(t, c.Close())
	require.NoError(t, server.Process.Signal(os.Interrupt))
	require.Equal(t, exitOK, server.code(t), server.stderr.String())
	rows := readKept(t, file, stored)
	all := got.all()
	gone := 0
	for _, id := range all {
		if !stored[id] {
			gone++
		}
	}
	t.Logf("%d results had, %d rows of %d samples, %d lost by %d kills, %d of them had", len(all), rows, len(stored), lost, kills, gone)
	assert.Equal(t, without, gone, "a process that ends by itself writes all")
}

// readKept checks a file, notes the ids that it has, and returns how many rows.
func readKept(t *testing.T, file string, stored map[string]bool) (rows int) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	defer db.Close()
	var verdict string
	require.NoError(t, db.QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&verdict))
	require.Equal(t, "ok", verdict)
	var written int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT (SELECT count(*) FROM results), (SELECT value FROM meta WHERE name = 'written')").Scan(&rows, &written))
	require.Equal(t, written, rows)
	list, err := db.QueryContext(t.Context(), "SELECT id FROM results")
	require.NoError(t, err)
	defer list.Close()
	for list.Next() {
		var id string
		require.NoError(t, list.Scan(&id))
		stored[id] = true
	}
	require.NoError(t, list.Err())
	return rows
}

// meddle does something to a file of results behind everybody's back.
func meddle(t *testing.T, file string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file)
	require.NoError(t, err)
	defer db.Close()
	for _, s := range statements {
		_, err := db.ExecContext(t.Context(), s)
		require.NoError(t, err)
	}
}
