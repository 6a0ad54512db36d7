package deploycheck_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/rewardloop/rewardloop/tools/deploycheck"
)

const (
	rulesFile     = deploy + "/prometheus/rules.yml"
	dashboardFile = deploy + "/grafana/rewardloop.json"
	ruleObject    = deploy + "/kubernetes/components/monitoring/rules.yaml"
	page          = root + "/docs/monitoring.md"
)

var update = flag.Bool("update", false, "write what is generated")

// catalogue is every metric that there is, and with recordings what the rules record.
func catalogue(t *testing.T, recordings bool) deploycheck.Catalogue {
	t.Helper()
	c, err := deploycheck.ReadCatalogue(root + "/docs/metrics.md")
	require.NoError(t, err)
	if recordings {
		for _, r := range rules(t) {
			if r.Record != "" {
				q, err := c.Query(r.Expr)
				require.NoError(t, err, r.Record)
				c[r.Record] = q.Labels
			}
		}
	}
	return c
}

// rules are those of all groups.
func rules(t *testing.T) []deploycheck.Rule {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	require.NoError(t, err)
	var file deploycheck.Rules
	require.NoError(t, yaml.UnmarshalStrict(text, &file))
	var all []deploycheck.Rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	require.Greater(t, len(all), 10)
	return all
}

// dashboard is what a test needs of one of Grafana.
type dashboard struct {
	Title, UID    string
	SchemaVersion int
	Panels        []panel
	Templating    struct {
		List []struct {
			Name, Type string
			Definition string
			Datasource struct{ UID string }
		}
	}
}

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ H, W, X, Y int }
	Datasource               struct{ Type, UID string }
	Targets                  []struct {
		Expr, LegendFormat, RefID string
		Datasource                struct{ Type, UID string }
	}
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	require.NoError(t, err)
	var d dashboard
	require.NoError(t, json.Unmarshal(text, &d))
	return d
}

// filled is an expression of the dashboard with its variables in it.
func filled(expr string) string {
	return strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h", "$job", ".*", "$instance", ".*", "$run", ".*", "$split", ".*").Replace(expr)
}

func TestEveryMetricAndLabelOfTheRulesExists(t *testing.T) {
	t.Parallel()
	c := catalogue(t, true)
	link := regexp.MustCompile(`docs/[a-z-]+\.md(#[a-z0-9-]+)?`)
	for _, r := range rules(t) {
		q, err := c.Query(r.Expr)
		require.NoError(t, err, r.Alert+r.Record)
		if r.Record != "" {
			assert.Regexp(t, `^rewardloop:[a-z_]+:[a-z0-9_]+$`, r.Record, "level:metric:operation")
			continue
		}
		assert.Regexp(t, `^Rewardloop[A-Za-z]+$`, r.Alert)
		assert.Contains(t, []string{"critical", "warning"}, r.Labels["severity"], r.Alert)
		for _, name := range []string{"summary", "description", "runbook"} {
			require.NotEmpty(t, r.Annotations[name], "%s: %s", r.Alert, name)
			require.NoError(t, q.Names(r.Annotations[name]), r.Alert)
		}
		assert.Regexp(t, `\.$`, r.Annotations["description"], "%s: the description is a sentence", r.Alert)
		links := link.FindAllString(r.Annotations["runbook"], -1)
		assert.NotEmpty(t, links, "%s: the runbook names a page of docs/", r.Alert)
		for _, l := range links {
			assert.True(t, anchored(t, l), "%s: there is no %s", r.Alert, l)
		}
	}
}

// anchored reports whether a page has the heading that a link names.
func anchored(t *testing.T, link string) bool {
	t.Helper()
	file, anchor, _ := strings.Cut(link, "#")
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if heading, is := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); is && strings.HasPrefix(line, "#") {
			slug := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			if strings.ReplaceAll(slug, " ", "-") == anchor {
				return true
			}
		}
	}
	return anchor == ""
}

func TestEveryAlertIsInTheDocumentAndHasACaseInWhichItFires(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile(page)
	require.NoError(t, err)
	cases, err := os.ReadFile("testdata/rules_test.yml")
	require.NoError(t, err)
	var known []string
	for _, r := range rules(t) {
		if r.Alert == "" {
			assert.Contains(t, string(document), "`"+r.Record+"`")
			continue
		}
		known = append(known, r.Alert)
		assert.Contains(t, string(document), "\n| `"+r.Alert+"` | "+r.Labels["severity"]+" |", "a row in docs/monitoring.md")
		assert.Contains(t, string(cases), `{alertname="`+r.Alert+`"}`, "a case in testdata/rules_test.yml")
	}
	for _, m := range regexp.MustCompile("`(Rewardloop[A-Za-z]+)`").FindAllStringSubmatch(string(document), -1) {
		assert.Contains(t, known, m[1], "docs/monitoring.md names an alert that there is not")
	}
}

// TestThePrometheusRuleOfKubernetesHasTheSameRules holds the object for the operator to the file;
// -update writes it.
func TestThePrometheusRuleOfKubernetesHasTheSameRules(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(rulesFile)
	require.NoError(t, err)
	body := string(text)[strings.Index(string(text), "groups:"):]
	want := "# The rules of deploy/prometheus/rules.yml, in which to change them:\n# go -C tools test ./deploycheck -run PrometheusRule -update writes them here.\n" +
		"apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: rewardloop\n  namespace: rewardloop\nspec:\n"
	for line := range strings.Lines(body) {
		if strings.TrimSpace(line) != "" {
			line = "  " + line
		}
		want += line
	}
	if *update {
		require.NoError(t, os.WriteFile(ruleObject, []byte(want), 0o600))
	}
	got, err := os.ReadFile(ruleObject)
	require.NoError(t, err)
	assert.Equal(t, want, string(got))
}

func TestTheDashboardIsOneThatGrafanaTakes(t *testing.T) {
	t.Parallel()
	d, c := readDashboard(t), catalogue(t, false)
	assert.GreaterOrEqual(t, d.SchemaVersion, 36, "Grafana 10 reads it without a migration")
	assert.NotEmpty(t, d.Title)
	assert.NotEmpty(t, d.UID)

	variables := []string{"__rate_interval", "__range"}
	for i, v := range d.Templating.List {
		if variables = append(variables, v.Name); i == 0 {
			require.Equal(t, "datasource", v.Type, "the data source is chosen first")
			continue
		}
		assert.Equal(t, "${datasource}", v.Datasource.UID, v.Name)
		m := regexp.MustCompile(`^label_values\((.+), ([a-z_]+)\)$`).FindStringSubmatch(v.Definition)
		require.NotNil(t, m, v.Name)
		q, err := c.Query(m[1])
		require.NoError(t, err, v.Name)
		assert.Contains(t, q.Labels, m[2], v.Name)
	}

	ids, titles, queries := map[int]bool{}, map[string]bool{}, 0
	var taken [24][]bool // by column, the lines that are
	for _, p := range d.Panels {
		assert.False(t, ids[p.ID], "%s: the id %d is another panel's", p.Title, p.ID)
		assert.False(t, titles[p.Title], "two panels are called %s", p.Title)
		ids[p.ID], titles[p.Title] = true, true
		place(t, &taken, p)
		if p.Type == "row" {
			continue
		}
		assert.Regexp(t, `\.$`, p.Description, "%s: a sentence says what it tells", p.Title)
		assert.Equal(t, "${datasource}", p.Datasource.UID, p.Title)
		refs := map[string]bool{}
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			queries++
			assert.False(t, refs[target.RefID], "%s: two queries are %s", p.Title, target.RefID)
			refs[target.RefID] = true
			assert.Equal(t, "${datasource}", target.Datasource.UID, p.Title)
			for _, m := range regexp.MustCompile(`\$([a-z_]+)`).FindAllStringSubmatch(target.Expr, -1) {
				assert.Contains(t, variables, m[1], "%s: a variable", p.Title)
			}
			assert.Regexp(t, `job=~"\$job", instance=~"\$instance"`, target.Expr, "%s: it heeds the choice of processes", p.Title)
			q, err := c.Query(filled(target.Expr))
			require.NoError(t, err, p.Title)
			require.NoError(t, q.Names(target.LegendFormat), p.Title)
		}
	}
	assert.Greater(t, queries, 50)
}

// place notes where a panel is: within 24 columns, on none that is there.
func place(t *testing.T, taken *[24][]bool, p panel) {
	t.Helper()
	g := p.GridPos
	require.True(t, g.X >= 0 && g.W > 0 && g.X+g.W <= len(taken) && g.Y >= 0 && g.H > 0, "%s: %+v is outside of the grid", p.Title, g)
	for x := g.X; x < g.X+g.W; x++ {
		for len(taken[x]) < g.Y+g.H {
			taken[x] = append(taken[x], false)
		}
		for y := g.Y; y < g.Y+g.H; y++ {
			require.False(t, taken[x][y], "%s lies on another panel", p.Title)
			taken[x][y] = true
		}
	}
}

// TestAQueryThatNamesWhatThereIsNotIsFound makes the mistakes that a renamed metric makes.
func TestAQueryThatNamesWhatThereIsNotIsFound(t *testing.T) {
	t.Parallel()
	c := catalogue(t, false)
	for expr, want := range map[string]string{
		`rewardloop_loop_samples{outcome="scored"}`:                             "no metric rewardloop_loop_samples",
		`rewardloop_loop_samples_total{result="scored"}`:                        "rewardloop_loop_samples_total has no label result",
		`sum by (worker) (rewardloop_live_places)`:                              "a label worker",
		`rate(rewardloop_loop_step_exposed_seconds[5m])`:                        "no metric rewardloop_loop_step_exposed_seconds",
		`histogram_quantile(0.9, rewardloop_loop_step_exposed_seconds_buckets)`: "no metric rewardloop_loop_step_exposed_seconds_buckets",
		`rewardlop_live_places > 0`:                                             "no metric rewardlop_live_places",
		`rewardloop_live_places{reward}`:                                        "is not a matcher",
		`1 + 1`:                                                                 "asks for no metric",
	} {
		_, err := c.Query(expr)
		require.ErrorContains(t, err, want, expr)
	}
	for expr, legend := range map[string]string{
		`sum by (reward) (rewardloop_live_places)`: "{{instance}}",
		`sum(rewardloop_live_places)`:              "{{ $labels.reward }} lacks places",
		`rewardloop_live_places`:                   "{{class}}",
	} {
		q, err := c.Query(expr)
		require.NoError(t, err)
		require.ErrorContains(t, q.Names(legend), "shows the label")
	}
}

// prometheusTool is a program of Prometheus: of the PATH, or what scripts/prometheus.sh has brought.
func prometheusTool(t *testing.T, name string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts programs")
	}
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	path, err := filepath.Abs(filepath.Join(root, ".cache", "prometheus", name))
	require.NoError(t, err)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("SKIPPED: no %s: make prometheus brings it to .cache on Debian, elsewhere put it on the PATH", name)
	}
	return path
}

func TestPromtoolTakesTheRulesAndEveryAlertFiresWhenItShould(t *testing.T) {
	t.Parallel()
	promtool := prometheusTool(t, "promtool")
	for _, args := range [][]string{{"check", "rules", "--lint-fatal", rulesFile}, {"test", "rules", "testdata/rules_test.yml"}} {
		out, err := command(t, promtool, args...).CombinedOutput()
		require.NoError(t, err, "promtool %v: %s", args, out)
	}
}

func TestPromtoolTakesTheConfigurationInTheDocument(t *testing.T) {
	t.Parallel()
	promtool := prometheusTool(t, "promtool")
	document, err := os.ReadFile(page)
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(document)
	require.NotNil(t, block)
	require.Contains(t, string(block[1]), "job_name: "+deploycheck.Job+"\n")
	file := filepath.Join(t.TempDir(), "prometheus.yml")
	require.NoError(t, os.WriteFile(file, block[1], 0o600))
	out, err := command(t, promtool, "check", "config", "--syntax-only", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// TestARealPrometheusScrapesAGatewayAndAnswersEveryPanel runs the rules and the queries of the
// dashboard where a running gateway is scraped.
func TestARealPrometheusScrapesAGatewayAndAnswersEveryPanel(t *testing.T) {
	t.Parallel()
	program := prometheusTool(t, "prometheus")
	server := runPrometheus(t, program, gateway(t))

	type rule struct{ Name, Health, LastError, LastEvaluation string }
	var evaluated struct{ Groups []struct{ Rules []rule } }
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		require.NoError(t, server.ask("rules", nil, &evaluated))
		require.Len(t, evaluated.Groups, 5)
		for _, g := range evaluated.Groups {
			for _, r := range g.Rules {
				require.NotEqual(t, "unknown", r.Health, "%s was not evaluated yet", r.Name)
			}
		}
		up, err := server.query(`up{job="rewardloop"} == 1`)
		require.NoError(t, err)
		require.Len(t, up, 1, "the gateway is scraped")
		live, err := server.query(`rewardloop:wanted_per_place:ratio`)
		require.NoError(t, err)
		require.Len(t, live, 1, "a recording has a value")
		rate, err := server.query(`rate(rewardloop_loop_retries_total[1m])`)
		require.NoError(t, err)
		require.Len(t, rate, 1, "the gateway was scraped twice")
	}, time.Minute, 250*time.Millisecond)
	for _, g := range evaluated.Groups {
		for _, r := range g.Rules {
			assert.Equal(t, "ok", r.Health, "%s: %s", r.Name, r.LastError)
		}
	}

	answered := 0
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			found, err := server.query(filled(target.Expr))
			require.NoError(t, err, "%s: %s", p.Title, target.Expr)
			answered += min(len(found), 1)
		}
	}
	assert.Greater(t, answered, 20, "queries that an idle gateway has an answer for")
}

// prometheus is a server that runs.
type prometheus struct{ base string }

// runPrometheus starts one with our rules that scrapes a gateway.
func runPrometheus(t *testing.T, program, target string) prometheus {
	t.Helper()
	dir := t.TempDir()
	absolute, err := filepath.Abs(rulesFile)
	require.NoError(t, err)
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\n"+
		"scrape_configs:\n  - job_name: rewardloop\n    static_configs: [{targets: [%q]}]\n", absolute, target)
	file := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	// Prometheus does not say which port it was given: one that was free a moment ago.
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())

	cmd := command(t, program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("Prometheus said:\n%s", log.String())
		}
	})
	return prometheus{"http://" + address + "/api/v1/"}
}

// ask reads an answer's data.
func (p prometheus) ask(path string, form url.Values, data any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.base+path+"?"+form.Encode(), http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	var got struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.Unmarshal(body, &got); err != nil {
		return fmt.Errorf("%s: %w: %s", answer.Status, err, body)
	}
	if got.Status != "success" {
		return fmt.Errorf("%s: %s", answer.Status, got.Error)
	}
	return json.Unmarshal(got.Data, data)
}

// query evaluates an expression and returns the series that it has.
func (p prometheus) query(expr string) ([]json.RawMessage, error) {
	var vector struct{ Result []json.RawMessage }
	err := p.ask("query", url.Values{"query": {expr}}, &vector)
	return slices.Clip(vector.Result), err
}
