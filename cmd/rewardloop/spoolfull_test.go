//go:build linux

package main_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	main "github.com/rewardloop/rewardloop/cmd/rewardloop"
	"github.com/rewardloop/rewardloop/testkit/fleet"
)

// The spool of a durable gateway has a disk of 3 MB. First samples alone fill it, twice over:
// they wait at their client and are all scored. Then somebody else fills it: everybody is
// told, a gateway that is killed starts again, and once there is room the samples that
// waited and those of a fresh client are scored, without anyone's hand.
func TestADurableGatewayOnAFullDiskSaysSoAndComesBack(t *testing.T) {
	t.Parallel()
	dir := main.SmallDisk(t, 3<<20)
	f := fleet.New(t, fleet.Config{
		Binary: main.Binary(t), Durable: true, SpoolDir: filepath.Join(dir, "spool"), ScoreLeast: 200 * time.Millisecond, ScoreMost: 600 * time.Millisecond,
	})
	gateway := f.Alone("alone")
	require.Contains(t, gateway.Log(), "queue.spool_bytes is 16384.0 MiB, and the file system of "+dir)
	for range 2 {
		begun := time.Now()
		report := f.Load(fleet.Load{Samples: 40, Bytes: 150 << 10, PerSecond: 200, Limit: 20 * time.Second}, gateway).Wait()
		t.Log(report, time.Since(begun))
		report.Check(t)
	}

	others := filepath.Join(dir, "others")
	main.Fill(t, others)
	run := f.Load(fleet.Load{Samples: 30, Bytes: 100 << 10, PerSecond: 200}, gateway)
	full := func() {
		t.Helper()
		for path, status := range map[string]int{
			"/readyz": http.StatusServiceUnavailable, "/readyz?reward=default": http.StatusServiceUnavailable, "/v1/pending": http.StatusOK, "/?plain": http.StatusOK,
		} {
			f.Await(path+" says that the spool is full", func() bool {
				main.Fill(t, others) // takes what the spool gives back
				got, body := f.Get(gateway, path)
				return got == status && strings.Contains(body, "spool full")
			})
		}
		f.Await("the log says it", func() bool { return strings.Contains(gateway.Log(), `reason="spool full`) })
		f.Await("the metric says it", func() bool {
			_, body := f.Get(gateway, "/metrics")
			return strings.Contains(body, "rewardloop_spool_full 1")
		})
	}
	full()
	main.Fill(t, others)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	doctor, _ := exec.CommandContext(ctx, main.Binary(t), "doctor", "server.listen=127.0.0.1:0", //nolint:gosec // what it lacks beside is no matter
		"reward.custom_reward_function.path=builtin://jpeg_compressibility", "++queue.durable=true", "++queue.spool_dir="+filepath.Join(dir, "spool")).Output()
	require.Contains(t, string(doctor), "spool full: queue.spool_bytes is 16384.0 MiB, and the file system of "+dir)
	gateway.Kill9()
	gateway.Start()
	full()

	require.NoError(t, os.Remove(others))
	freed := time.Now()
	report := run.Wait()
	t.Log(report, time.Since(freed))
	report.Check(t)
	require.Less(t, time.Since(freed), 30*time.Second)
	report = f.Load(fleet.Load{Samples: 20, Bytes: 100 << 10, PerSecond: 200}, gateway).Wait()
	report.Check(t)
	f.Await("the gateway is ready", func() bool {
		status, _ := f.Get(gateway, "/readyz?reward=default")
		return status == http.StatusOK
	})
	entries, err := os.ReadDir(filepath.Join(dir, "spool"))
	require.NoError(t, err)
	var used int64
	for _, e := range entries {
		if info, err := e.Info(); !errors.Is(err, os.ErrNotExist) {
			used += info.Size()
		}
	}
	t.Logf("%d bytes in %d files", used, len(entries))
}
