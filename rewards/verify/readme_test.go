package verify_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/verify"
)

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	return string(text)
}

func TestTheReadmeNamesEveryOptionWithItsDefault(t *testing.T) {
	t.Parallel()
	text := readme(t)
	for _, spec := range verify.Specs() {
		_, section, found := strings.Cut(text, "\n## "+spec.Name+"\n")
		require.True(t, found, spec.Name)
		section, _, _ = strings.Cut(section, "\n## ")
		if strings.Contains(section, "those of the addresses") {
			_, addresses, _ := strings.Cut(text, "\n## Addresses\n")
			section += addresses
		}
		for _, o := range spec.Options {
			assert.Contains(t, section, "`"+o.Name+"` | "+o.Default+" |", "%s", spec.Name)
		}
	}
}

// TestTheReadmesSQLToolWorks runs the script that the README shows against a database.
func TestTheReadmesSQLToolWorks(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: commands need Linux")
	}
	source, err := os.ReadFile("testdata/nl2sql.py")
	require.NoError(t, err)
	require.Contains(t, readme(t), "```python\n"+string(source)+"```", "README.md shows another script than testdata/nl2sql.py")
	interpreter := python(t)
	folder := t.TempDir()
	database := filepath.Join(folder, "concerts.sqlite")
	setUp := `import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.executescript("create table singer(name, age); insert into singer values ('a', 20), ('b', 30)")`
	out, err := exec.CommandContext(t.Context(), interpreter, "-c", setUp, database).CombinedOutput()
	require.NoError(t, err, string(out))
	before, err := os.ReadFile(database)
	require.NoError(t, err)
	impatient := filepath.Join(t.TempDir(), "nl2sql.py")
	hasty := strings.Replace(string(source), "MAX_SECONDS = 10_000, 5", "MAX_SECONDS = 10_000, 0.2", 1)
	require.NotEqual(t, string(source), hasty)
	require.NoError(t, os.WriteFile(impatient, []byte(hasty), 0o600))
	v, err := verify.New("command", options{"argv": []string{interpreter, impatient, folder}}.raw(t), nil)
	require.NoError(t, err)

	for response, want := range map[string]string{
		"so\n```sql\nselect age, name from singer order by age desc\n```": `{"ran": true, "rows": 2, "match": true}`,
		"select name, age from singer":                                    `{"ran": true, "rows": 2, "match": false}`,
		"```sql\nselect * from song\n```":                                 `{"ran": false, "match": false, "error": "no such table: song"}`,
		"drop table singer":                                               `{"ran": false, "match": false, "error": "not authorized"}`,
		"attach '/etc/passwd' as x":                                       `{"ran": false, "match": false, "error": "not authorized"}`,
		"with recursive n(i) as (select 1 union all select i + 1 from n) select sum(i) from n": `{"ran": false, "match": false, "error": "interrupted"}`,
		"I cannot": `{"ran": false, "match": false, "error": "near \"I\": syntax error"}`,
	} {
		result, err := v.Verify(t.Context(), &rewards.Sample{
			ID: "s", Response: response, GroundTruth: json.RawMessage(`{"db": "concerts", "sql": "select age, name from singer"}`),
		})
		require.NoError(t, err, response)
		assert.JSONEq(t, want, string(result), response)
	}
	result, err := v.Verify(t.Context(), &rewards.Sample{ID: "s", GroundTruth: json.RawMessage(`{"db": "../x", "sql": "select 1"}`)})
	fails(t, rewards.Internal, result, err, "Traceback")
	after, err := os.ReadFile(database)
	require.NoError(t, err)
	assert.Equal(t, before, after)
}
