package deploycheck_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/tools/deploycheck"
)

// stubACL stands for what `rewardloop queue acl` writes, where that does not matter.
const stubACL = "accounts { REWARDLOOP { jetstream: enabled, users: [] } }\n"

// kustomizations are the base and all overlays below a folder.
func kustomizations(t *testing.T, kubernetes string) []string {
	t.Helper()
	overlays, err := filepath.Glob(filepath.Join(kubernetes, "overlays", "*"))
	require.NoError(t, err)
	require.NotEmpty(t, overlays)
	return append(overlays, filepath.Join(kubernetes, "base"))
}

// examine returns everything that is wrong with a kustomization, and the command lines
// in it.
func examine(t *testing.T, dir, acl string) ([]deploycheck.CommandLine, error) {
	t.Helper()
	supplied, err := deploycheck.Supplied(filepath.Join(deploy, "README.md"))
	require.NoError(t, err)
	objects, faults := deploycheck.Build(dir)
	if objects == nil {
		return nil, faults
	}
	c := deploycheck.NewCluster(objects, supplied)
	faults = errors.Join(faults, c.Check())
	lines, err := c.CommandLines()
	return lines, errors.Join(faults, err, c.NATS(t.TempDir(), acl))
}

func TestEveryKustomizationIsWhatKubernetesAndNATSTake(t *testing.T) {
	t.Parallel()
	acl := realACL(t)
	for _, dir := range kustomizations(t, filepath.Join(deploy, "kubernetes")) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			lines, err := examine(t, dir, acl)
			require.NoError(t, err)
			checkLines(t, lines)
		})
	}
}

// realACL is an acl.conf of `rewardloop queue acl`.
func realACL(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "access")
	out, err := command(t, rewardloop(t).Path, "queue", "acl", "--out", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	text, err := os.ReadFile(filepath.Join(dir, "acl.conf"))
	require.NoError(t, err)
	return string(text)
}

func TestEveryComponentIsInAnOverlay(t *testing.T) {
	t.Parallel()
	components, err := filepath.Glob(filepath.Join(deploy, "kubernetes", "components", "*"))
	require.NoError(t, err)
	overlays, err := filepath.Glob(filepath.Join(deploy, "kubernetes", "overlays", "*", "kustomization.yaml"))
	require.NoError(t, err)
	var all strings.Builder
	for _, file := range overlays {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		all.Write(text)
	}
	for _, c := range components {
		assert.Contains(t, all.String(), "components/"+filepath.Base(c)+"\n")
	}
}

// TestAMistakeIsFound makes one mistake in a copy, and expects it to be named.
func TestAMistakeIsFound(t *testing.T) {
	t.Parallel()
	for _, m := range []struct {
		name, overlay, file, old, new, want string
	}{
		{"a misspelt field", "base", "base/gateway.yaml", "minReadySeconds:", "minReadySecond:", `unknown field "spec.minReadySecond"`},
		{"a field in another case", "base", "base/worker.yaml", "maxSurge:", "maxsurge:", `unknown field "spec.strategy.rollingUpdate.maxsurge"`},
		{"a misspelt field in a component", "gpu", "components/gpu/worker.yaml", "limits:", "limit:", `unknown field`},
		{"a card that the pod is not given", "gpu", "components/gpu/worker.yaml", ", nvidia.com/gpu: \"1\"}", "}", "no nvidia.com/gpu among its limits"},
		{"a card that nothing runs on", "gpu", "components/gpu/kustomization.yaml", "device=cuda:0", "device=cpu", "none of its models runs on a card"},
		{"a misspelt field of KEDA", "autoscale-keda", "components/autoscale-keda/scaledobject.yaml", "pollingInterval:", "pollInterval:", `unknown field "spec.pollInterval"`},
		{"a misspelt setting of a trigger", "autoscale-keda", "components/autoscale-keda/scaledobject.yaml", "serverAddress:", "server:", `has no "server"`},
		{"a value that is none", "base", "base/worker.yaml", "ScheduleAnyway", "ScheduleAlways", `"ScheduleAlways" is not among the values of v1.UnsatisfiableConstraintAction`},
		{"a kind that nobody knows", "base", "base/network.yaml", "kind: NetworkPolicy", "kind: NetPolicy", "are not among those that are used here"},
		{"a selector that matches nothing", "base", "base/worker.yaml", "  selector:\n    matchLabels: {app.kubernetes.io/name: worker}\n  template", "  selector:\n    matchLabels: {app.kubernetes.io/name: workers}\n  template", "does not match its pods' labels"},
		{"a Service without pods", "base", "base/nats.yaml", "  selector: {app.kubernetes.io/name: nats}\n  ports:\n    - {name: client, port: 4222, targetPort: client}\n---", "  selector: {app: nats}\n  ports:\n    - {name: client, port: 4222, targetPort: client}\n---", "Service nats selects no pods"},
		{"a Service whose port is closed", "base", "base/gateway.yaml", "targetPort: http}", "targetPort: web}", "do not open web"},
		{"a secret that nobody makes", "base", "base/gateway.yaml", "secretName: gateway-nkey", "secretName: gateway-key", "secret/gateway-key is neither here"},
		{"a key that a secret does not have", "base", "base/worker.yaml", "{key: worker.nk,", "{key: nkey,", `has no key "nkey"`},
		{"a configMap that is not there", "base", "base/gateway.yaml", "{name: rewardloop-config}", "{name: config}", "configmap/config is neither here"},
		{"a mount without a volume", "base", "base/worker.yaml", "{name: tmp, mountPath: /tmp}", "{name: temp, mountPath: /tmp}", `nothing is called "temp"`},
		{"a probe at a closed port", "base", "base/worker.yaml", "httpGet: {path: /readyz, port: http}", "httpGet: {path: /readyz, port: 8080}", "readinessProbe: no port 8080 is open"},
		{"a container that may write", "base", "base/nats.yaml", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "needs readOnlyRootFilesystem"},
		{"two images", "base", "base/worker.yaml", "image: rewardloop", "image: elsewhere/rewardloop:1", "where another workload has"},
		{"a budget that stops every drain", "base", "base/worker.yaml", "  maxUnavailable: 1\n  unhealthy", "  maxUnavailable: 0\n  unhealthy", "stop a node from ever being drained"},
		{"a budget for nobody", "nats-cluster", "components/nats-cluster/budget.yaml", "name: nats}\n", "name: bus}\n", "PodDisruptionBudget nats selects no pods"},
		{"a policy for a closed port", "base", "base/network.yaml", "ports: [{port: client}]", "ports: [{port: bus}]", "do not open bus"},
		{"no policy that refuses", "base", "base/network.yaml", "  podSelector: {}\n  policyTypes: [Ingress, Egress]", "  podSelector: {}\n  policyTypes: [Egress]", "no NetworkPolicy refuses"},
		{"an autoscaler without a target", "autoscale-hpa", "components/autoscale-hpa/hpa.yaml", "kind: Deployment, name: worker", "kind: Deployment, name: workers", "Deployment workers is not here"},
		{"an autoscaler beside a fixed size", "autoscale-keda", "components/autoscale-keda/kustomization.yaml", "{op: remove, path: /spec/replicas}", "{op: replace, path: /spec/replicas, value: 3}", "has replicas: 3"},
		{"two autoscalers", "production", "overlays/production/kustomization.yaml", "  - ../../components/autoscale-hpa", "  - ../../components/autoscale-hpa\n  - ../../components/autoscale-keda", "spec/replicas"},
		{"a fleet that goes to nothing", "autoscale-keda", "components/autoscale-keda/scaledobject.yaml", "minReplicaCount: 2", "minReplicaCount: 0", "at least one pod always"},
		{"a fleet that shrinks between two rollouts", "autoscale-hpa", "components/autoscale-hpa/hpa.yaml", "stabilizationWindowSeconds: 900", "stabilizationWindowSeconds: 60", "must outlast an update"},
		{"a variable that is declared too late", "tls", "components/tls/gateway.yaml", "            - name: POD_NAME\n              valueFrom: {fieldRef: {fieldPath: metadata.name}}\n", "", "ADVERTISE refers to $(POD_NAME), which is not declared before it"},
		{"an address where nobody answers", "base", "base/worker.yaml", "nats://nats:4222", "nats://bus:4222", "nobody answers at bus:4222"},
		{"a file that is not mounted", "tls", "components/tls/kustomization.yaml", "queue.tls_ca=/etc/rewardloop/tls/ca.crt", "queue.tls_ca=/etc/rewardloop/tls/ca.pem", "nothing is mounted at /etc/rewardloop/tls/ca.pem"},
		{"a word that NATS does not know", "base", "base/nats.conf", "max_memory_store:", "max_memory:", "NATS configuration"},
		{"more memory for NATS than there is", "base", "base/nats.conf", "max_memory_store: 1GB", "max_memory_store: 4GB", "JetStream may have"},
		{"a peer that is not there", "nats-cluster", "components/nats-cluster/cluster.conf", "nats-2.nats-peers", "nats-3.nats-peers", "nobody answers at nats-3.nats-peers"},
		{"fewer peers than servers", "nats-cluster", "components/nats-cluster/nats.yaml", "replicas: 3", "replicas: 5", "names 3 servers, the StatefulSet nats has 5"},
		{"a misspelt field of a PodMonitor", "monitoring", "components/monitoring/podmonitors.yaml", "jobLabel:", "joblabel:", `unknown field "spec.joblabel"`},
		{"a monitor of nobody", "monitoring", "components/monitoring/podmonitors.yaml", "name: worker}", "name: workers}", "no PodMonitor selects the pods of worker"},
		{"a monitor at a closed port", "monitoring", "components/monitoring/podmonitors.yaml", "port: http", "port: metrics", `do not answer at port "metrics"`},
		{"a monitor without the token", "monitoring", "components/monitoring/podmonitors.yaml", "      authorization:\n        credentials: {name: rewardloop-token, key: token}\n", "", "want a token: true; it sends one: false"},
		{"a monitor with another secret", "monitoring", "components/monitoring/podmonitors.yaml", "{name: rewardloop-token, key: token}", "{name: rewardloop-token, key: secret}", `has no key "secret"`},
		{"a monitor whose job the rules do not name", "monitoring", "components/monitoring/podmonitors.yaml", "jobLabel: app.kubernetes.io/part-of", "jobLabel: app.kubernetes.io/name", "and the rules name rewardloop"},
		{"a monitor that does not speak TLS", "production", "overlays/production/kustomization.yaml", "value: https", "value: http", `asks with the scheme "http"`},
		{"a monitor that no policy lets in", "monitoring", "base/network.yaml", "kubernetes.io/metadata.name: monitoring", "kubernetes.io/metadata.name: metrics", "no NetworkPolicy lets the namespace monitoring in"},
		{"a cluster whose tickets lie on one server", "nats-cluster", "components/nats-cluster/kustomization.yaml", "queue.replicas=3", "queue.replicas=1", "no queue.replicas=3"},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			dir := changed(t, filepath.Join(deploy, "kubernetes"), m.file, m.old, m.new)
			overlay := filepath.Join(dir, "overlays", m.overlay)
			if m.overlay == "base" {
				overlay = filepath.Join(dir, "base")
			}
			_, err := examine(t, overlay, stubACL)
			require.ErrorContains(t, err, m.want)
		})
	}
}

// changed copies a folder and replaces a text in one of its files.
func changed(t *testing.T, from, file, old, replacement string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(from)))
	path := filepath.Join(dir, file)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(text), old, "the mistake is not one in %s any more", file)
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(text), old, replacement)), 0o600))
	return dir
}

// TestACommandLineThatTheBinaryDoesNotTakeIsFound covers flags, overrides, the file and
// the time to stop.
func TestACommandLineThatTheBinaryDoesNotTakeIsFound(t *testing.T) {
	t.Parallel()
	config, err := os.ReadFile(filepath.Join(deploy, "config.yaml"))
	require.NoError(t, err)
	good := deploycheck.CommandLine{Where: "here", Args: []string{"serve", "--listen=127.0.0.1:8080", "loop.max_attempts=2"}, Config: string(config), Grace: 150e9}
	require.NoError(t, rewardloop(t).Check(t.Context(), good))

	for want, spoil := range map[string]func(*deploycheck.CommandLine){
		"has no flag --listn":                                         func(l *deploycheck.CommandLine) { l.Args = []string{"serve", "--listn=x"} },
		"so that it is one argument":                                  func(l *deploycheck.CommandLine) { l.Args = []string{"serve", "--listen", "x"} },
		"stands after the overrides":                                  func(l *deploycheck.CommandLine) { l.Args = []string{"serve", "loop.max_attempts=2", "--listen=x"} },
		"no such key loop.max_attempt":                                func(l *deploycheck.CommandLine) { l.Args = []string{"serve", "loop.max_attempt=2"} },
		"rewardloop srve --help":                                      func(l *deploycheck.CommandLine) { l.Args = []string{"srve"} },
		"begins with no command":                                      func(l *deploycheck.CommandLine) { l.Args = nil },
		`the scorer "ocr" has no such option; did you mean required?`: func(l *deploycheck.CommandLine) { l.Config = strings.Replace(l.Config, "required", "require", 1) },
		"loop.drain_timeout (2m0s) and":                               func(l *deploycheck.CommandLine) { l.Grace = 120e9 },
		"preStop (30s)":                                               func(l *deploycheck.CommandLine) { l.PreStop = 30e9 },
	} {
		line := good
		spoil(&line)
		require.ErrorContains(t, rewardloop(t).Check(t.Context(), line), want)
	}
}

func TestTheNATSServerIsTheOneThatTheTestsRun(t *testing.T) {
	t.Parallel()
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	m := regexp.MustCompile(`nats-server/v2 v([0-9.]+)`).FindSubmatch(mod)
	require.NotNil(t, m, "go.mod names no nats-server")
	for _, file := range []string{"kubernetes/base/nats.yaml", "compose.yaml", "../tools/go.mod"} {
		text, err := os.ReadFile(filepath.Join(deploy, file))
		require.NoError(t, err)
		found := regexp.MustCompile(`(?:image: nats:|nats-server/v2 v)([0-9.]+)`).FindSubmatch(text)
		require.NotNil(t, found, file)
		assert.Equal(t, string(m[1]), string(found[1]), file)
	}
}
