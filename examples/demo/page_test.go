package demo_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/examples/demo"
)

// The page shows both runs, every group and the best and worst pictures, and a second demo
// replaces it.
func TestThePageShowsTracksGroupsAndPictures(t *testing.T) {
	t.Parallel()
	all := pictures(t)[:8]
	d := made(t)
	for i := range d.Record.Samples {
		all[i].ID, all[i].UID = d.Record.Samples[i].ID, d.Record.Samples[i].UID
	}
	dir := saved(t, d)
	rep, err := d.Report()
	require.NoError(t, err)
	require.NoError(t, d.SavePage(t.Context(), dir, all, rep))
	data, err := os.ReadFile(filepath.Join(dir, demo.PageFile))
	require.NoError(t, err)
	page := string(data)
	for _, s := range d.Record.Samples {
		assert.Contains(t, page, s.ID)
	}
	for _, part := range []string{"<h2>Who worked when</h2>", "Streamed: scored while others are generated", "Scored after the rollout", "GPU 0", "class=\"scoring\"", "<h2>Prompt groups</h2>", "<h2>Best</h2>", "<h2>Worst</h2>"} {
		assert.Contains(t, page, part)
	}
	assert.Equal(t, 8, strings.Count(page, `src="data:image/jpeg;base64,`))
	require.NoError(t, d.Save(dir, rep))
	assert.NoFileExists(t, filepath.Join(dir, demo.PageFile), "a folder never holds the files of two demos")
}

// The column is the one of the Python package, and of the tensors file where there is no Python.
func TestTheTrainersColumnHasARowForEachSampleAndVerlAsksForNoMore(t *testing.T) {
	d := made(t)
	dir := saved(t, d)
	without, err := d.Trainer(t.Context(), "no-such-python", dir)
	require.NoError(t, err)
	assert.Equal(t, "rm_scores.safetensors, read in Go", without.By)
	assert.NotEmpty(t, without.Instead)
	assert.False(t, without.Asks)
	assert.Contains(t, without.String(), "float32 [8, 1]: batch × response length")

	python := os.Getenv("REWARDLOOP_PYTHON")
	if python == "" || exec.CommandContext(t.Context(), python, "-c", "import numpy").Run() != nil {
		t.Skip("SKIPPED: REWARDLOOP_PYTHON names no Python with NumPy")
	}
	t.Chdir(filepath.Join("..", ".."))
	with, err := d.Trainer(t.Context(), python, dir)
	require.NoError(t, err)
	assert.Equal(t, "rewardloop.rm_scores of the Python package", with.By)
	assert.Equal(t, []int{without.Rows, without.Length, without.Valid}, []int{with.Rows, with.Length, with.Valid})
	assert.False(t, with.Asks)
	assert.Equal(t, "float32", with.DType)
}
