package pyenv_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/pyenv"
)

func TestARequirementsFileIsReadWithWhatItIncludes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	top := put("top.txt", "a==1\r\n-r below/more.txt\n")
	put("below/more.txt", "b==2\n-c limits.txt\n--find-links ../wheels")
	limits := put("below/limits.txt", "c<3\n")
	var s pyenv.Spec
	require.NoError(t, s.ReadFile(top))
	require.Equal(t, "a==1\nb==2\n-c below/limits.txt\n--find-links wheels\n", s.Requirements)
	require.NoError(t, s.Validate())

	var again pyenv.Spec
	require.NoError(t, os.WriteFile(limits, []byte("c<4\n"), 0o600))
	before := s
	require.True(t, before.Equal(s))
	require.NoError(t, again.ReadFile(top))
	require.Equal(t, s.Requirements, again.Requirements)

	round := put("round.txt", "-r round.txt\n")
	require.ErrorContains(t, s.ReadFile(round), "include each other")
	require.ErrorIs(t, s.ReadFile(filepath.Join(dir, "none.txt")), pyenv.ErrSpec)
	require.ErrorContains(t, s.ReadFile(dir), "are not a file")
	require.ErrorContains(t, s.ReadFile(put("noise.txt", "a\x00b")), "are not a text")
	big := put("big.txt", "")
	require.NoError(t, os.Truncate(big, 2<<20))
	require.ErrorContains(t, s.ReadFile(big), "the limit is")
}

func TestTheFolderOfEnvironmentsIsBesideThatOfTheModels(t *testing.T) {
	t.Parallel()
	env := func(pairs map[string]string) func(string) (string, bool) {
		return func(name string) (string, bool) { v, ok := pairs[name]; return v, ok }
	}
	s, err := pyenv.FromEnvironment(env(map[string]string{"REWARDLOOP_ENVS": "/e", "REWARDLOOP_MODELS": "/m/models", "REWARDLOOP_PYTHON": "/p"}))
	require.NoError(t, err)
	require.Equal(t, pyenv.Store{Dir: "/e", Python: "/p"}, s)
	s, err = pyenv.FromEnvironment(env(map[string]string{"REWARDLOOP_MODELS": "/m/models/"}))
	require.NoError(t, err)
	require.Equal(t, "/m/envs", s.Dir)
}

func TestALicenceThatIsNotSaidIsUnknown(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "MIT", pyenv.Licence("MIT", "something else", nil))
	assert.Equal(t, "BSD", pyenv.Licence("", " BSD ", nil))
	assert.Equal(t, "Apache Software License", pyenv.Licence("", "the whole\ntext", []string{"License :: OSI Approved :: Apache Software License", "Typing :: Typed"}))
	assert.Equal(t, "Other", pyenv.Licence("", "UNKNOWN", []string{"License :: Other"}))
	assert.Empty(t, pyenv.Licence("", "UNKNOWN", []string{"License :: OSI Approved"}))
}

func TestASizeThatNobodySaysIsUnknown(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, http.MethodHead, r.Method)
		switch r.URL.Path {
		case "/whole":
			w.Header().Set("Content-Length", "4711")
		case "/refused":
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	defer srv.Close()
	file := filepath.Join(t.TempDir(), "x.whl")
	require.NoError(t, os.WriteFile(file, []byte("12345"), 0o600))
	require.Equal(t, []int64{4711, 0, 5, 0, 0}, pyenv.Sizes(t.Context(), srv.Client(), srv.URL+"/whole", srv.URL+"/refused", "file://"+file, "file:///none", "::"))
}

func TestNoPasswordIsInALock(t *testing.T) {
	t.Parallel()
	require.Equal(t, "--index-url https://example.com/simple", pyenv.WithoutUser("--index-url https://me:secret@example.com/simple"))
	require.Equal(t, "a==1 --hash=sha256:00", pyenv.WithoutUser("a==1 --hash=sha256:00"))
}
