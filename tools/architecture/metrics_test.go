package architecture_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/rewards"
)

const metricsPage = "docs/metrics.md"

// metric is what one of the three places says of a metric.
type metric struct {
	kind, help string
	labels     []string // in the order of the alphabet
}

// declaredMetrics is what the code declares: the end of the name and the help, which stand beside
// each other as literals wherever the package internal/metric is used.
func declaredMetrics(t *testing.T) map[string]string {
	t.Helper()
	name := regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	found := map[string]string{} // help → end of the name
	for _, s := range sources(t) {
		if !slices.ContainsFunc(s.file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"`+module+`/internal/metric"` }) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) < 2 {
				return true
			}
			if end, help := literal(call.Args[0]), literal(call.Args[1]); name.MatchString(end) && strings.Contains(help, " ") {
				assert.NotContains(t, found, help, "%s: two metrics have the same help", s.at(n.Pos()))
				assert.Regexp(t, `^[A-Z1].*\.$`, help, "%s: the help of %s is a sentence", s.at(n.Pos()), end)
				assert.NotRegexp(t, `(?i)\b(of them|those|such|the above|the same of)\b`, help, "%s: the help of %s is read by itself", s.at(n.Pos()), end)
				found[help] = end
			}
			return true
		})
	}
	return found
}

// literal is the text of a string literal, or of several that are added up; "" of anything else.
func literal(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, _ := strconv.Unquote(e.Value)
			return text
		}
	case *ast.BinaryExpr:
		return literal(e.X) + literal(e.Y)
	}
	return ""
}

// inDocument are the rows of the page: | `name` | kind | labels | unit | what it tells | what to do |.
func inDocument(t *testing.T) map[string]metric {
	t.Helper()
	text, err := os.ReadFile(metricsPage)
	require.NoError(t, err)
	rows := map[string]metric{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		name := strings.Trim(strings.TrimSpace(cells[0]), "`")
		if !strings.HasPrefix(name, "rewardloop_") || !strings.HasPrefix(line, "|") {
			continue
		}
		require.Len(t, cells, 6, "a row has six cells: %s", line)
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
			require.NotEmpty(t, cells[i], "an empty cell: %s", line)
		}
		require.NotContains(t, rows, name, "documented twice")
		m := metric{kind: cells[1], help: cells[4]}
		for _, label := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(cells[2], -1) {
			m.labels = append(m.labels, label[1])
		}
		slices.Sort(m.labels)
		rows[name] = m
	}
	return rows
}

var (
	helpLine   = regexp.MustCompile(`(?m)^# HELP (rewardloop_\w+) (.*)$`)
	typeLine   = regexp.MustCompile(`(?m)^# TYPE (rewardloop_\w+) (\w+)$`)
	sampleLine = regexp.MustCompile(`(?m)^(rewardloop_\w+?)(?:_bucket|_sum|_count)?\{([^}]*)\}`)
	labelName  = regexp.MustCompile(`(\w+)="`)
)

// emitted reads pages of /metrics.
func emitted(pages ...string) map[string]metric {
	all := map[string]metric{}
	for _, page := range pages {
		kinds := map[string]string{}
		for _, m := range typeLine.FindAllStringSubmatch(page, -1) {
			kinds[m[1]] = m[2]
		}
		for _, m := range helpLine.FindAllStringSubmatch(page, -1) {
			all[m[1]] = metric{kind: kinds[m[1]], help: strings.ReplaceAll(m[2], `\\`, `\`), labels: all[m[1]].labels}
		}
		for _, m := range sampleLine.FindAllStringSubmatch(page, -1) {
			found, known := all[m[1]]
			for _, l := range labelName.FindAllStringSubmatch(m[2], -1) {
				if known && l[1] != "le" && !slices.Contains(found.labels, l[1]) {
					found.labels = append(found.labels, l[1])
				}
			}
			if slices.Sort(found.labels); known {
				all[m[1]] = found
			}
		}
	}
	return all
}

// unreliable is an engine whose first answer is that it is busy.
func unreliable(t *testing.T) string {
	t.Helper()
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = w.Write([]byte(`{"data":[]}`)) // whether it is there
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil || asked.Add(1) == 1 {
			http.Error(w, "busy", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"<score>0.%d</score>"}}],`+
			`"usage":{"prompt_tokens":9,"completion_tokens":3}}`, asked.Load())
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// get reads a page of a server.
func get(t *testing.T, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(body)
}

// everything has a gateway, its NATS and a process of workers do all that is counted, and
// returns what their pages of /metrics say, and which metrics are not among that for want
// of something on this machine.
func everything(t *testing.T) (pages []string, missing map[string]string) {
	t.Helper()
	const component = "+reward.reward_functions."
	shared := []string{
		"telemetry.otlp_endpoint=http://127.0.0.1:1",
		"reward.reward_model.enable=true", "reward.reward_model.model_path=m", "reward.reward_model.rollout.name=external",
		"+reward.reward_model.rollout.base_urls=[" + unreliable(t) + "/v1]", "+reward.reward_model.rollout.requests_per_minute=6000",
		component + "judge.path=builtin://judge", component + "judge.required=true", component + "judge.template=Is {response} right?",
		"+rewards.started.custom_reward_function.path=builtin://genrm_ocr",
		"rewards.started.reward_model={enable: true, model_path: m, rollout: {name: vllm, device: cpu, interpreter: /nowhere/python}}",
	}
	missing = map[string]string{}
	if _, err := ort.Find(""); err != nil && os.Getenv("REQUIRE_ORT") != "1" {
		missing["rewardloop_pool"] = fmt.Sprintf("no ONNX Runtime: %v", err)
		missing["rewardloop_children"] = missing["rewardloop_pool"]
	} else {
		folder, err := filepath.Abs(filepath.Join("testdata", "models", "tiny-clip"))
		require.NoError(t, err)
		shared = append(shared, component+"pair.path=builtin://clipscore", component+"pair.model="+folder, component+"pair.required=true")
	}

	dir := t.TempDir()
	if _, err := exec.LookPath(cmp.Or(os.Getenv("REWARDLOOP_PYTHON"), "python3")); err != nil {
		missing["rewardloop_python"] = fmt.Sprintf("no Python: %v", err)
	} else {
		function := filepath.Join(dir, "one.py")
		require.NoError(t, os.WriteFile(function, []byte("def compute_score(solution_str):\n    return 1.0\n"), 0o600))
		shared = append(shared, component+"mine.path="+function, component+"mine.required=true")
	}
	gateway, addr := serving(t, append(slices.Clone(shared), "reward.num_workers=0", "++queue.nats_listen=127.0.0.1:0", "++queue.name=gw",
		"++queue.durable=true", "++queue.spool_dir="+filepath.Join(dir, "spool"), "++queue.nats_dir="+filepath.Join(dir, "nats"), "++store.path="+filepath.Join(dir, "store.db"))...)
	cfg, err := config.Load("", append(slices.Clone(shared), "++queue.nats=[nats://"+gateway.NATS()+"]", "++queue.name=w",
		"reward.num_workers=1", "++queue.durable=true", "++queue.spool_dir="+filepath.Join(dir, "none")), os.LookupEnv)
	require.NoError(t, err)
	w, err := node.NewWorker(node.Options{Config: cfg, Version: "test"})
	require.NoError(t, err)
	require.NoError(t, w.Start(t.Context()))
	t.Cleanup(w.Stop)
	face, err := w.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)

	// Two steps of a group each: a step's drift is told from the one before.
	c := dialled(t, addr, "metrics")
	for step := range int64(2) {
		require.NoError(t, c.Step(rewards.Train, step, 2))
		var group []rewards.Sample
		for i := range 2 {
			picture, _ := speckled(16, 16, uint64(i)) //nolint:gosec // a small number
			group = append(group, rewards.Sample{
				ID: fmt.Sprintf("%d-%d", step, i), Step: step, Split: rewards.Train, UID: fmt.Sprint(step), GroupSize: 2, Prompt: "a cat",
				Response: fmt.Sprintf("answer %d of step %d", i, step), Media: []*rewards.Media{picture},
			})
		}
		scored(t, c, group...)
	}
	// A sample for a reward that there is not.
	f, err := dialled(t, addr, "refused").Submit(t.Context(), &rewards.Sample{ID: "x", Reward: "nonesuch"}, 0)
	require.NoError(t, err)
	res, err := f.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, rewards.Rejected, res.Outcome)

	for range 2 { // the second page counts the first
		pages = append(pages, get(t, "http://"+addr+"/metrics"), get(t, "http://"+face.String()+"/metrics"))
	}
	return pages, missing
}

var update = flag.Bool("update", false, "write what is generated")

// writeRows writes type, labels and help of every metric into its row of the page. A metric
// without a row gets one at the end of the page: whoever adds it moves the row to its section,
// and says its unit and what to do.
func writeRows(t *testing.T, all map[string]metric) {
	t.Helper()
	text, err := os.ReadFile(metricsPage)
	require.NoError(t, err)
	var out strings.Builder
	rows := inDocument(t)
	row := func(name, labels, unit, todo string) {
		switch l := all[name].labels; {
		case slices.Equal(l, rows[name].labels) && labels != "": // in an order that somebody has chosen
		case len(l) > 0:
			labels = "`" + strings.Join(l, "` `") + "`"
		default:
			labels = "–"
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s | %s | %s |\n", name, all[name].kind, labels, unit, all[name].help, todo)
	}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		name := strings.Trim(strings.TrimSpace(cells[0]), "`")
		if _, there := all[name]; there && strings.HasPrefix(line, "|") {
			row(name, strings.TrimSpace(cells[2]), strings.TrimSpace(cells[3]), strings.TrimSpace(cells[5]))
		} else {
			out.WriteString(line)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if _, there := rows[name]; !there {
			row(name, "", "–", "–")
		}
	}
	require.NoError(t, os.WriteFile(metricsPage, []byte(out.String()), 0o600))
}

// Whatever the code counts is in docs/metrics.md and on /metrics, and nothing else is.
func TestEveryMetricIsDocumentedAndEmitted(t *testing.T) {
	t.Parallel()
	source, document := declaredMetrics(t), inDocument(t)
	require.Greater(t, len(source), 80, "the scan of the source finds little: %v", source)
	pages, missing := everything(t)
	for _, page := range pages { // what promtool check metrics does
		problems, err := promlint.New(strings.NewReader(page)).Lint()
		require.NoError(t, err)
		for _, p := range problems {
			assert.False(t, strings.HasPrefix(p.Metric, "rewardloop_"), "promlint: %s: %s", p.Metric, p.Text)
		}
	}
	all := emitted(pages...)
	if *update {
		writeRows(t, all)
		document = inDocument(t)
	}
	lacks := func(name string) bool {
		for prefix, why := range missing {
			if strings.HasPrefix(name, prefix) {
				t.Logf("SKIPPED: %s: %s", name, why)
				return true
			}
		}
		return false
	}

	known := map[string]bool{} // helps of metrics that are emitted
	for _, name := range slices.Sorted(maps.Keys(all)) {
		m, row := all[name], document[name]
		known[m.help] = true
		end, made := source[m.help]
		if assert.True(t, made && strings.HasSuffix(name, end), "%s is emitted, and the scan of the source does not find it: %q", name, m.help) &&
			assert.Contains(t, document, name, "not in %s: a %s with labels %v: %s", metricsPage, m.kind, m.labels, m.help) {
			assert.Equal(t, m.kind, row.kind, name)
			assert.Equal(t, m.labels, row.labels, name)
			assert.Equal(t, m.help, row.help, "%s: %s tells what the help tells; go -C tools test ./architecture -run Metric -update writes it", name, metricsPage)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(document)) {
		if _, there := all[name]; !there && !lacks(name) {
			t.Errorf("%s is in %s and not on /metrics", name, metricsPage)
		}
	}
	for help, end := range source {
		ends := func(name string) bool { return strings.HasSuffix(name, end) && lacks(name) }
		if !known[help] && !slices.ContainsFunc(slices.Collect(maps.Keys(document)), ends) {
			t.Errorf("…%s is made and not on /metrics: %s", end, help)
		}
	}
}
