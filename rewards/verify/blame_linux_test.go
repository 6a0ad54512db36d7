package verify_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/verify"
	"github.com/rewardloop/rewardloop/testkit/executable"
)

func TestTheBlameForAVerifierIsByTheTable(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts processes")
	}
	gone := filepath.Join(t.TempDir(), "tool")
	executable.Write(t, gone, "#!/bin/sh\n")
	missing, err := verify.New("command", options{"argv": []string{gone}}.raw(t), nil)
	require.NoError(t, err)
	require.NoError(t, os.Remove(gone))
	service := func(status int, body string) rewards.Verifier {
		return asking(t, "http", says(t, status, body), options{"request": options{"r": "{response}"}})
	}
	for _, tt := range []struct {
		event     string
		verifier  rewards.Verifier
		class     rewards.Class
		blame     rewards.Blame
		permanent bool
	}{
		{"the program fails", shell(t, nil, "exit 3"), rewards.Internal, rewards.BlameReward, false},
		{"the program dies", shell(t, nil, "kill -SEGV $$"), rewards.Crashed, rewards.BlameReward, false},
		{"timeout while the program runs", shell(t, options{"run_timeout": 0.1}, "exec sleep 100"), rewards.Timeout, rewards.BlameReward, false},
		{"the program is missing on this worker", missing, rewards.Internal, rewards.BlameWorker, true},
		{"400 of a service", service(400, ""), rewards.BadInput, rewards.BlameSample, false},
		{"404", service(404, ""), rewards.Internal, rewards.BlameDependency, true},
		{"5xx", service(503, ""), rewards.Unavailable, rewards.BlameDependency, false},
		{"an answer that is no JSON", service(200, "<html>"), rewards.Unavailable, rewards.BlameDependency, false},
	} {
		t.Run(tt.event, func(t *testing.T) {
			t.Parallel()
			_, _, err := verify.Apply(t.Context(), []verify.Named{{Key: "k", Required: true, Verifier: tt.verifier}}, sample())
			blame, permanent := rewards.BlameOf(err)
			assert.Equal(t, tt.class, rewards.ClassOf(err), "%v", err)
			assert.Equal(t, tt.blame, blame, "%v", err)
			assert.Equal(t, tt.permanent, permanent, "%v", err)
		})
	}
	t.Run("timeout while queued for a run", func(t *testing.T) {
		t.Parallel()
		begun := filepath.Join(t.TempDir(), "begun")
		v := shell(t, options{"max_concurrent": 1, "run_timeout": 2}, `: > "$1"; exec sleep 100`, begun)
		first := make(chan struct{})
		go func() {
			defer close(first)
			_, _ = v.Verify(t.Context(), sample())
		}()
		require.Eventually(t, func() bool {
			_, err := os.Stat(begun)
			return err == nil
		}, 10*time.Second, time.Millisecond)
		late, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := v.Verify(late, sample())
		<-first
		blame, _ := rewards.BlameOf(err)
		assert.Equal(t, rewards.BlameNobody, blame, "%v", err)
		assert.Equal(t, rewards.Timeout, rewards.ClassOf(err), "%v", err)
	})
}
