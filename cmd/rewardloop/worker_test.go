package main

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAWorkerSaysWhatItLacks(t *testing.T) {
	t.Parallel()
	const reward = "reward.custom_reward_function.path=builtin://length"
	for says, args := range map[string][]string{
		"the address of the gateways is missing": {reward},
		"want addresses such as nats://":         {reward, "--join", "http://x"},
		`unknown reward "b"`:                     {reward, "--join", "nats://x:1", "--rewards", "b"},
		"no reward is named":                     {"--join", "nats://x:1"},
		"queue.nkey_file is set too":             {reward, "--join", "nats://x:1", "++queue.nkey_file=a", "++queue.creds_file=b"},
		"tls_cert and queue.tls_key go toge":     {reward, "--join", "nats://x:1", "++queue.tls_cert=a"},
	} {
		out := call(t, "", append([]string{"worker"}, args...)...)
		assert.Equal(t, exitUsage, out.code, says)
		assert.Contains(t, out.stderr, says)
	}
}

// Nobody is at the address: the worker waits for 30 s, unless it is told to stop.
func TestAWorkerThatWaitsForItsQueueStopsWhenItIsTold(t *testing.T) {
	t.Parallel()
	p := start(t, "", nil, nil, "worker", "--join", "nats://127.0.0.1:1", "reward.custom_reward_function.path=builtin://length")
	p.stderr.await(t, "cannot be reached yet")
	begun := time.Now()
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	assert.Equal(t, exitFailure, p.code(t))
	assert.Less(t, time.Since(begun), 15*time.Second)
}

// Other users of the machine reach the loopback, too: they have another home, and no key.
func TestANATSOfTheLoopbackTakesTheUsersOwnWorkersAndThoseThatHaveItsKey(t *testing.T) {
	t.Parallel()
	const reward = "reward.custom_reward_function.path=builtin://length"
	gateway := start(t, "", nil, nil, "serve", "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", reward, "reward.num_workers=0")
	gateway.stderr.await(t, "workers can connect")
	said := gateway.stderr.String()
	address := regexp.MustCompile(`nats=(\S+)`).FindStringSubmatch(said)[1]
	assert.Contains(t, said, `join="rewardloop worker --join nats://`+address+`"`)
	key := regexp.MustCompile(`nkey_file=(\S+)`).FindStringSubmatch(said)[1]
	info, err := os.Stat(key)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	join := func(home string, more ...string) *process {
		return startAt(t, home, append([]string{"worker", "--join", "nats://" + address, reward}, more...)...)
	}
	join(os.Getenv("XDG_CONFIG_HOME")).stderr.await(t, "the worker accepts samples")
	stranger := join(t.TempDir())
	assert.Equal(t, exitFailure, stranger.code(t))
	assert.Contains(t, stranger.stderr.String(), "name this role's key with queue.nkey_file")
	assert.Contains(t, stranger.stderr.String(), "a gateway that made its own keys logs where they are")
	join(t.TempDir(), "++queue.nkey_file="+key).stderr.await(t, "the worker accepts samples")
}

// startAt starts the program as a user whose configurations are in a folder.
func startAt(t *testing.T, home string, args ...string) *process {
	t.Helper()
	return startIn(t, "", append(os.Environ(), "XDG_CONFIG_HOME="+home), nil, nil, args...)
}

// On a fresh machine the NATS makes its user's keys when it starts, and whoever joins it may have started before.
func TestAWorkerThatStartsBeforeTheNATSThatMakesItsKeyHasIt(t *testing.T) {
	t.Parallel()
	const reward = "reward.custom_reward_function.path=builtin://length"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	home := t.TempDir()
	worker := startAt(t, home, "worker", "--join", "nats://"+address, reward)
	worker.stderr.await(t, "cannot be reached yet")
	startAt(t, home, "serve", "--listen", "127.0.0.1:0", "--nats-listen", address, reward, "reward.num_workers=0")
	worker.stderr.await(t, "the worker accepts samples")
}

func TestANATSOfTheLoopbackIsRefusedWhereNoKeyCanBeKept(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(binary(t), "serve", "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "reward.custom_reward_function.path=builtin://length", "reward.num_workers=0")
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME=/proc/none")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "make keys with `rewardloop queue acl --out access`, and write queue.acl_file=access/acl.conf")
}

// A worker whose launcher is gone ends with its standard input, and says beforehand where
// it can be looked at.
func TestAWorkerEndsWithItsStandardInput(t *testing.T) {
	t.Parallel()
	const reward = "reward.custom_reward_function.path=builtin://length"
	gateway := start(t, "", nil, nil, "serve", "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", reward, "reward.num_workers=0")
	gateway.stderr.await(t, "workers can connect")
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	address := regexp.MustCompile(`nats=(\S+)`).FindStringSubmatch(gateway.stderr.String())[1]
	stdout := watched()
	child := start(t, "", r, stdout, "worker", "--join", "nats://"+address, "--name", "x", "--listen", "127.0.0.1:0", "--until-stdin-closes", reward)
	stdout.await(t, "}\n")
	var line ready
	require.NoError(t, json.Unmarshal([]byte(stdout.String()), &line))
	assert.Equal(t, ready{Event: "ready", Worker: "x", PID: child.Process.Pid, Listen: line.Listen}, line)
	assert.NotEmpty(t, line.Listen)
	require.NoError(t, w.Close())
	assert.Equal(t, exitOK, child.code(t), child.stderr)
	assert.Contains(t, child.stderr.String(), "the program that started this process ended")
}
