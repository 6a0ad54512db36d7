//go:build linux

package claim_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/fabric/claim"
	"github.com/rewardloop/rewardloop/wire"
)

// sharing is a rig and a worker that share a folder of the test's.
func sharing(t *testing.T, base string) (*rig, *worker) {
	t.Helper()
	r := newRig(t, func(o *claim.ServerOptions) { o.Config.Shared, o.Config.SharedDir = true, base })
	return r, newWorker(t, func(o *claim.ClientOptions) { o.Config.Shared, o.Config.SharedDir = true, base })
}

const (
	sentBytes     = "rewardloop_claim_sent_bytes_total"
	receivedBytes = "rewardloop_claim_client_received_bytes_total"
)

func TestPayloadsGoThroughMemoryThatBothSidesSee(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	r, w := sharing(t, base)
	var tasks sync.WaitGroup
	for i, size := range []int{1000, 70_000, 3 * 512 * 512, 5 << 20, 800_000, 1 << 20, 2 << 20} {
		ticket := r.ticket(name("sample", i), size)
		tasks.Go(func() {
			f, _, err := w.Claim(t.Context(), ticket, "worker-1")
			if assert.NoError(t, err) {
				assert.Equal(t, ticket.ID, f.Header().Sample.ID)
				f.Release()
			}
		})
	}
	tasks.Wait()
	require.Greater(t, counter(t, r.reg, sentBytes, "shared_memory"), 1e6)
	require.InDelta(t, counter(t, r.reg, sentBytes, "shared_memory"), counter(t, w.reg, receivedBytes, "shared_memory"), 0)
	require.InDelta(t, counter(t, r.reg, sentBytes, "websocket"), counter(t, w.reg, receivedBytes, "websocket"), 0)
	dirs, err := filepath.Glob(base + "/*")
	require.NoError(t, err)
	require.Len(t, dirs, 1)
	info, err := os.Stat(dirs[0])
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	w.Close()
	require.Eventually(t, func() bool {
		files, err := os.ReadDir(dirs[0])
		return err == nil && len(files) == 1 && files[0].Name() == "marker"
	}, soon, time.Millisecond, "its staging files go with a connection")
	r.server.Close()
	require.NoDirExists(t, dirs[0])
}

func TestAClaimGoesOverTheSocketWhereSharedMemoryCannotBeWritten(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	r, w := sharing(t, base)
	f, _, err := w.Claim(t.Context(), r.ticket("sample-1", 100), "worker-1")
	require.NoError(t, err)
	f.Release()
	dirs, err := filepath.Glob(base + "/*")
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(dirs[0]))
	for i := range 3 {
		f, _, err = w.Claim(t.Context(), r.ticket(name("picture", i), 900_000), "worker-1")
		require.NoError(t, err)
		f.Release()
	}
	require.InDelta(t, 0, counter(t, w.reg, receivedBytes, "shared_memory"), 0)
}

func TestAClaimGoesOverTheSocketWhereSharedMemoryCannotBeRead(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	r, w := sharing(t, base)
	dirs, err := filepath.Glob(base + "/*")
	require.NoError(t, err)
	p := newProxy(t, r.url())
	p.tap = func(_ int, _ int64, b []byte) bool {
		if strings.Contains(string(b), `"staged"`) {
			assert.NoError(t, os.Truncate(filepath.Join(dirs[0], "c1-0"), 1000))
		}
		return false
	}
	for i := range 3 {
		f, _, err := w.Claim(t.Context(), p.via(r.ticket(name("picture", i), 900_000)), "worker-1")
		require.NoError(t, err)
		f.Release()
		require.Equal(t, 1, r.store.claims[name("picture", i)])
	}
	require.InDelta(t, 1, counter(t, w.reg, "rewardloop_claim_client_corrupt_total"), 0, "it is tried once")
}

func TestStagedBytesAreCheckedToo(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	r, w := sharing(t, base)
	dirs, err := filepath.Glob(base + "/*")
	require.NoError(t, err)
	p := newProxy(t, r.url())
	spoilt := false
	p.tap = func(_ int, _ int64, b []byte) bool {
		if at := strings.Index(string(b), `"staged"`); at >= 0 && !spoilt {
			spoilt = true
			f, err := os.OpenFile(filepath.Join(dirs[0], "c1-0"), os.O_WRONLY, 0)
			if assert.NoError(t, err) {
				_, _ = f.WriteAt([]byte("spoilt"), 400_000)
				_ = f.Close()
			}
		}
		return false
	}
	f, _, err := w.Claim(t.Context(), p.via(r.ticket("sample-1", 900_000)), "worker-1")
	require.NoError(t, err)
	require.Equal(t, r.store.frames["sample-1"].Sum(), f.Sum())
	f.Release()
	require.InDelta(t, 1, counter(t, w.reg, "rewardloop_claim_client_corrupt_total"), 0)
	require.Equal(t, 1, r.store.claims["sample-1"])
}

func TestAGatewayRemovesTheFoldersOfThoseThatHaveEnded(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	left := filepath.Join(base, "rewardloop-claim-1")
	require.NoError(t, os.Mkdir(left, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(left, "marker"), []byte(strings.Repeat("x", 64)), 0o600))
	others := filepath.Join(base, "somebody-elses")
	require.NoError(t, os.Mkdir(others, 0o700))
	readable, begun := filepath.Join(base, "rewardloop-claim-2"), filepath.Join(base, "rewardloop-claim-3")
	require.NoError(t, os.Mkdir(readable, 0o755))
	require.NoError(t, os.Mkdir(begun, 0o700)) // by a gateway that has no marker yet
	alive, _ := sharing(t, base)
	require.NoDirExists(t, left)
	_, _ = sharing(t, base)
	dirs, err := filepath.Glob(base + "/*")
	require.NoError(t, err)
	require.Len(t, dirs, 5, "that of a gateway that lives stays, and what is not ours")
	for _, dir := range []string{others, readable, begun} {
		require.DirExists(t, dir)
	}
	alive.server.Close()
}

func TestAWorkerLooksOnlyWhereSharedMemoryIs(t *testing.T) {
	t.Parallel()
	base, elsewhere := t.TempDir(), t.TempDir()
	secret := filepath.Join(elsewhere, "rewardloop-claim-x")
	require.NoError(t, os.Mkdir(secret, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(secret, "marker"), []byte(strings.Repeat("s", 64)), 0o600))
	require.NoError(t, os.Symlink(secret, filepath.Join(base, "rewardloop-claim-link")))
	open := filepath.Join(base, "rewardloop-claim-open")
	require.NoError(t, os.Mkdir(open, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(open, "marker"), []byte(strings.Repeat("s", 64)), 0o600))
	bare, short := filepath.Join(base, "rewardloop-claim-bare"), filepath.Join(base, "rewardloop-claim-short")
	require.NoError(t, os.Mkdir(bare, 0o700))
	require.NoError(t, os.Mkdir(short, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(short, "marker"), []byte("s"), 0o600))
	for _, dir := range []string{bare, short, secret, base + "/rewardloop-claim-link", open, base + "/rewardloop-claim-no", base + "/x/../rewardloop-claim-open", "/etc", ""} {
		told := make(chan string, 10)
		ticket := gateway(t, `{"type":"welcome","protocol":1,"gateway":"gateway-1","shared":{"dir":"`+dir+`","prefix":"c1","files":8}}`, func(e *end, m *wire.ClaimAsk) {
			told <- "claim"
			b, _ := wire.EncodeClaim(&wire.ClaimRefused{N: m.N, Reason: wire.RefusedGone})
			_ = e.conn.Send(b)
		})
		w := newWorker(t, func(o *claim.ClientOptions) { o.Config.Shared, o.Config.SharedDir = true, base })
		_, _, err := w.Claim(t.Context(), ticket, "worker-1")
		require.ErrorIs(t, err, wire.ErrGone)
		require.Equal(t, "claim", <-told)
	}
}

func TestAStagingFileThatCannotBeReadIsAskedForOverTheSocket(t *testing.T) {
	t.Parallel()
	for what, staged := range map[string]string{
		"more bytes than the claim has": `"file":0,"bytes":21`,
		"a file that is not there":      `"file":1,"bytes":5`,
		"a file beyond all":             `"file":8,"bytes":5`,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			base := t.TempDir()
			dir := filepath.Join(base, "rewardloop-claim-1")
			require.NoError(t, os.Mkdir(dir, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "marker"), []byte(strings.Repeat("s", 64)), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "c1-0"), make([]byte, 100), 0o600))
			plain := make(chan bool, 2)
			ticket := gateway(t, `{"type":"welcome","protocol":1,"gateway":"gateway-1","shared":{"dir":"`+dir+`","prefix":"c1","files":8}}`, func(e *end, m *wire.ClaimAsk) {
				if plain <- m.Plain; m.Plain {
					b, _ := wire.EncodeClaim(&wire.ClaimRefused{N: m.N, Reason: wire.RefusedGone})
					_ = e.conn.Send(b)
					return
				}
				b, _ := wire.EncodeClaim(&wire.ClaimPayload{N: m.N, Frames: []wire.ClaimFrame{{Sum: wire.Checksum{Len: 20}}}})
				_ = e.conn.Send(b)
				_ = e.conn.Send([]byte(`{"type":"staged","n":` + strconv.FormatUint(m.N, 10) + `,` + staged + `}`))
			})
			w := newWorker(t, func(o *claim.ClientOptions) { o.Config.Shared, o.Config.SharedDir = true, base })
			_, _, err := w.Claim(t.Context(), ticket, "worker-1")
			require.ErrorIs(t, err, wire.ErrGone)
			require.False(t, <-plain)
			require.True(t, <-plain)
		})
	}
}

// proven opens a connection that says it has read the marker, and claims a payload.
func proven(t *testing.T, r *rig, spoil string, size int) {
	t.Helper()
	e := stranger(t, r)
	e.say(t, `{"type":"hello","protocol":1,"session":"s"}`)
	var welcome wire.ClaimWelcome
	require.NoError(t, json.Unmarshal([]byte(<-e.texts), &welcome))
	marker := markerOf(t, &welcome)
	e.say(t, `{"type":"proof","marker":"`+spoil+marker[len(spoil):]+`"}`)
	ticket := r.ticket("large", size)
	key, err := json.Marshal(ticket.Key())
	require.NoError(t, err)
	e.say(t, `{"type":"claim","n":1,"attempt":`+string(key)+`,"token":"`+ticket.Token+`","worker":"w"}`)
	require.Eventually(t, func() bool { return counter(t, r.reg, sentBytes) >= float64(size) }, soon, time.Millisecond)
}

func TestWhoHasNotReadTheMarkerGetsNothingThroughSharedMemory(t *testing.T) {
	t.Parallel()
	r, _ := sharing(t, t.TempDir())
	proven(t, r, "wrong", 900_000)
	require.Zero(t, counter(t, r.reg, sentBytes, "shared_memory"))
}

func TestWhatDoesNotFitIntoTheStagingFilesGoesOverTheSocket(t *testing.T) {
	t.Parallel()
	r, _ := sharing(t, t.TempDir())
	proven(t, r, "", 10<<20) // none of the eight files is given back
	require.InDelta(t, 8<<20, counter(t, r.reg, sentBytes, "shared_memory"), 0)
}

func TestAGatewayWithoutSharedMemorySendsOverTheSocket(t *testing.T) {
	t.Parallel()
	r, w := sharing(t, filepath.Join(t.TempDir(), "missing"))
	f, _, err := w.Claim(t.Context(), r.ticket("picture", 900_000), "worker-1")
	require.NoError(t, err)
	f.Release()
	require.Zero(t, counter(t, r.reg, sentBytes, "shared_memory"))
}
