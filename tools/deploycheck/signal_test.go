package deploycheck_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/tools/deploycheck"
)

// TestAGatewayServesTheScalingSignal asks a running gateway for what the autoscalers'
// queries name.
func TestAGatewayServesTheScalingSignal(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+gateway(t)+"/metrics", nil)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	metrics, err := io.ReadAll(answer.Body)
	require.NoError(t, err)

	for _, file := range []string{
		"kubernetes/components/autoscale-hpa/prometheus-adapter.yaml",
		"kubernetes/components/autoscale-keda/scaledobject.yaml",
		"README.md",
	} {
		text, err := os.ReadFile(filepath.Join(deploy, file))
		require.NoError(t, err)
		named := deploycheck.Metrics(string(text))
		require.GreaterOrEqual(t, len(named), 2, file)
		for _, name := range named {
			if name == "rewardloop_wanted_per_place" { // the adapter's own name for the ratio
				continue
			}
			assert.Regexp(t, `(?m)^`+name+`(\{.*\})? `, string(metrics), file)
		}
	}
}

// gateway starts one and returns its address.
func gateway(t *testing.T) string {
	t.Helper()
	cmd := command(t, rewardloop(t).Path, "serve", "--listen=127.0.0.1:0", "reward.num_workers=1",
		"reward.custom_reward_function.path=builtin://jpeg_compressibility")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	logs, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	var said strings.Builder
	for lines := bufio.NewScanner(logs); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if m := regexp.MustCompile(`msg=serving address=(\S+)`).FindStringSubmatch(lines.Text()); m != nil {
			go func() { _, _ = io.Copy(io.Discard, logs) }() // ends with the process
			return m[1]
		}
	}
	t.Fatalf("the gateway did not start:\n%s", said.String())
	return ""
}

// TestTheCommandsInTheREADMEsAreTheBinarys holds the flags in text to those there are.
func TestTheCommandsInTheREADMEsAreTheBinarys(t *testing.T) {
	t.Parallel()
	said := regexp.MustCompile("rewardloop (queue acl|serve|worker|plan)((?: [^`\\n#]*)?)")
	flag := regexp.MustCompile(`(?:^| )--([a-z-]+)`)
	for _, file := range []string{"README.md", "slurm/README.md"} {
		text, err := os.ReadFile(filepath.Join(deploy, file))
		require.NoError(t, err)
		for _, m := range said.FindAllStringSubmatch(string(text), -1) {
			known, err := rewardloop(t).Flags(t.Context(), strings.Fields(m[1])...)
			require.NoError(t, err)
			for _, f := range flag.FindAllStringSubmatch(m[2], -1) {
				assert.Contains(t, known, f[1], "%s: %s", file, m[0])
			}
		}
	}
}
