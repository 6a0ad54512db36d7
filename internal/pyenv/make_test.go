package pyenv_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/pyenv"
	"github.com/rewardloop/rewardloop/internal/pywheel"
	"github.com/rewardloop/rewardloop/testkit/executable"
)

func TestTwoEnvironmentsHoldVersionsThatContradictEachOther(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	_, find := wheels(t)
	for name, version := range map[string]string{"old": "1.0", "new": "2.0"} {
		var plan pyenv.Plan
		e, err := s.Make(t.Context(), pyenv.Spec{Requirements: find + name + "\n"}, pyenv.Options{
			Agree: func(_ context.Context, p pyenv.Plan) error { plan = p; return nil },
		})
		require.NoError(t, err)
		require.Equal(t, version, says(t, e, "import dep, "+name+"; print(dep.__version__)"))
		require.Equal(t, []string{"dep", name}, []string{plan.Packages[0].Name, plan.Packages[1].Name})
		assert.Equal(t, "Apache-2.0", plan.Packages[0].Licence)
		assert.Positive(t, plan.Packages[0].Size)
		assert.Equal(t, plan.Packages[0].Size+plan.Packages[1].Size, plan.Total)
		assert.Zero(t, plan.Unknown)
		lock, err := os.ReadFile(filepath.Join(e.Dir, "requirements.lock"))
		require.NoError(t, err)
		assert.Contains(t, string(lock), "dep=="+version+" --hash=sha256:"+plan.Packages[0].SHA256)
	}
	made, unfinished, err := s.List()
	require.NoError(t, err)
	require.Len(t, made, 2)
	require.Empty(t, unfinished)
}

func TestAnEnvironmentIsKnownByItsContent(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	dir, find := wheels(t)
	file, lock := filepath.Join(dir, "requirements.txt"), filepath.Join(dir, "locked.txt")
	require.NoError(t, os.WriteFile(file, []byte("--no-index\n-f .\nold  # the first\n"), 0o600))
	var spec pyenv.Spec
	require.NoError(t, spec.ReadFile(file))
	_, err := s.Find(spec)
	require.ErrorIs(t, err, pyenv.ErrMissing)
	first, err := s.Make(t.Context(), spec, pyenv.Options{Lock: lock})
	require.NoError(t, err)
	found, err := s.Find(spec)
	require.NoError(t, err)
	require.Equal(t, first.Interpreter, found.Interpreter)

	var locked pyenv.Spec
	require.NoError(t, locked.ReadFile(lock))
	require.Contains(t, locked.Requirements, "--hash=sha256:")
	installs := 0
	count := func(e pyenv.Event) {
		if e.Stage == pyenv.Installing {
			installs++
		}
	}
	same, err := s.Make(t.Context(), locked, pyenv.Options{Progress: count, Agree: refuse})
	require.NoError(t, err, "it is made: nobody is asked")
	require.Equal(t, first.Dir, same.Dir)
	require.Zero(t, installs)

	copied := filepath.Join(dir, "copied.txt")
	_, err = s.Make(t.Context(), spec, pyenv.Options{Lock: copied})
	require.NoError(t, err)
	text, err := os.ReadFile(copied)
	require.NoError(t, err)
	require.Contains(t, string(text), "dep==1.0 --hash=sha256:")

	shown := spec
	shown.SystemSitePackages = true
	other, err := s.Make(t.Context(), shown, pyenv.Options{})
	require.NoError(t, err)
	require.NotEqual(t, first.Name, other.Name)
	require.Equal(t, "True", says(t, other, "import sys, sysconfig; print(any(p.startswith(sys.base_prefix) and p.endswith('site-packages') for p in sys.path))"))
	require.Equal(t, "False", says(t, first, "import sys, sysconfig; print(any(p.startswith(sys.base_prefix) and p.endswith('site-packages') for p in sys.path))"))

	require.NoError(t, os.WriteFile(file, []byte(find+"new\n"), 0o600))
	require.NoError(t, spec.ReadFile(file))
	_, err = s.Find(spec)
	require.ErrorIs(t, err, pyenv.ErrMissing, "the file says something else now")
}

func refuse(context.Context, pyenv.Plan) error { return errors.New("no") }

func TestOfMakersOfTheSameEnvironmentOneMakesItAndTheOthersUseIt(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	_, find := wheels(t)
	const makers = 3
	var agreed sync.WaitGroup // all have found that it is not made before one begins
	agreed.Add(makers)
	var installs, waits atomic.Int32
	var all sync.WaitGroup
	names := make([]string, makers)
	for i := range makers {
		all.Go(func() {
			begun := sync.Once{}
			e, err := s.Make(t.Context(), pyenv.Spec{Requirements: find + "old\n"}, pyenv.Options{
				Agree: func(context.Context, pyenv.Plan) error { agreed.Done(); agreed.Wait(); return nil },
				Progress: func(e pyenv.Event) {
					switch e.Stage {
					case pyenv.Installing:
						begun.Do(func() { installs.Add(1) })
					case pyenv.Waiting:
						if strings.Contains(e.Note, "py3.") {
							waits.Add(1)
						}
					}
				},
			})
			assert.NoError(t, err)
			names[i] = e.Name
		})
	}
	all.Wait()
	require.EqualValues(t, 1, installs.Load())
	require.EqualValues(t, makers-1, waits.Load())
	require.Equal(t, []string{names[0], names[0], names[0]}, names)
}

func TestNothingIsMadeWithoutAgreement(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	_, find := wheels(t)
	spec := pyenv.Spec{Requirements: find + "old\n"}
	_, err := s.Make(t.Context(), spec, pyenv.Options{Agree: refuse})
	require.ErrorIs(t, err, pyenv.ErrRefused)
	_, err = s.Find(spec)
	require.ErrorIs(t, err, pyenv.ErrMissing)
	onlyHidden(t, s)
}

// onlyHidden holds that a store has no environment and nothing that a maker has left.
func onlyHidden(t *testing.T, s pyenv.Store) {
	t.Helper()
	left, err := os.ReadDir(s.Dir)
	require.NoError(t, err)
	for _, f := range left {
		require.Contains(t, []string{".pip", ".specs", ".locks"}, f.Name())
	}
}

// What a maker leaves that is killed at any moment: a folder without its last file, and the folder
// in which it resolved.
func TestWhatAKilledMakerLeftDoesNotCountAndIsCleared(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	_, find := wheels(t)
	spec := pyenv.Spec{Requirements: find + "old\n"}
	e, err := s.Make(t.Context(), spec, pyenv.Options{})
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(e.Dir, "environment.json")))
	require.NoError(t, os.WriteFile(filepath.Join(e.Dir, "half"), []byte("x"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(s.Dir, ".making-KILLED"), 0o755))
	_, err = s.Find(spec)
	require.ErrorIs(t, err, pyenv.ErrMissing)
	_, unfinished, err := s.List()
	require.NoError(t, err)
	require.Equal(t, []string{e.Name}, unfinished)

	again, err := s.Make(t.Context(), spec, pyenv.Options{})
	require.NoError(t, err)
	require.Equal(t, e.Dir, again.Dir)
	require.NoFileExists(t, filepath.Join(e.Dir, "half"))
	require.NoDirExists(t, filepath.Join(s.Dir, ".making-KILLED"))
	require.Equal(t, "1.0", says(t, again, "import dep; print(dep.__version__)"))
}

func TestAMakerDoesNotWaitForAnotherForEver(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	_, find := wheels(t)
	spec := pyenv.Spec{Requirements: find + "old\n"}
	_, err := s.Make(t.Context(), spec, pyenv.Options{Timeout: time.Minute, Agree: func(_ context.Context, p pyenv.Plan) error {
		l, err := s.Lock(p.Name)
		require.NoError(t, err)
		require.NotNil(t, l)
		t.Cleanup(func() { _ = l.Close() })
		return nil
	}, Patience: 2 * time.Second})
	require.ErrorIs(t, err, pyenv.ErrBusy)
	onlyHidden(t, s)
}

func TestWhatGoesWrongSaysWhatWhereAndWhatToDo(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	dir, find := wheels(t)
	source := filepath.Join(dir, "raw-1.0.tar.gz")
	require.NoError(t, os.WriteFile(source, []byte("no archive"), 0o600))
	ancient := filepath.Join(dir, "python3.9")
	executable.Write(t, ancient, "#!/bin/sh\necho '{\"version\": \"3.9.18\", \"executable\": \"/x\"}'\n")
	for name, c := range map[string]struct {
		spec  pyenv.Spec
		class error
		says  []string
	}{
		"an unknown package":  {pyenv.Spec{Requirements: find + "no_such_package\n"}, pyenv.ErrResolve, []string{"no_such_package", "correct the name or version", "--allow-source"}},
		"an unknown version":  {pyenv.Spec{Requirements: find + "dep==7\n"}, pyenv.ErrResolve, []string{"dep==7"}},
		"contradictions":      {pyenv.Spec{Requirements: find + "old\nnew\n"}, pyenv.ErrResolve, []string{"loosen one of the versions", "dep==1.0"}},
		"a line of nonsense":  {pyenv.Spec{Requirements: find + "old at one\n"}, pyenv.ErrResolve, []string{"correct the line"}},
		"no such Python":      {pyenv.Spec{Python: "3.99"}, pyenv.ErrPython, []string{"Python 3.99 is not on this machine", "python3.99 is not there", "python3 is 3."}},
		"no Python at all":    {pyenv.Spec{Python: "/bin/false"}, pyenv.ErrPython, []string{"/bin/false does not start"}},
		"a Python not there":  {pyenv.Spec{Python: dir + "/python"}, pyenv.ErrPython, []string{dir + "/python is not there"}},
		"an old Python":       {pyenv.Spec{Python: ancient}, pyenv.ErrPython, []string{"python3.9 is 3.9.18, and reward functions need 3.10 or newer"}},
		"no network":          {pyenv.Spec{Requirements: "--index-url http://127.0.0.1:1/simple\nold\n"}, pyenv.ErrNetwork, []string{"check the network"}},
		"another hash":        {pyenv.Spec{Requirements: find + "dep==1.0 --hash=sha256:" + strings.Repeat("0", 64) + "\n"}, pyenv.ErrHash, []string{"dep", "do not use it"}},
		"hashes for a part":   {pyenv.Spec{Requirements: find + "dep==1.0 --hash=sha256:" + strings.Repeat("0", 64) + "\nold\n"}, pyenv.ErrHash, nil},
		"source alone":        {pyenv.Spec{Requirements: find + "raw @ file://" + source + "\n"}, pyenv.ErrResolve, nil},
		"a folder under edit": {pyenv.Spec{Requirements: "-e .\n"}, pyenv.ErrSpec, []string{"build a wheel"}},
		"a repository":        {pyenv.Spec{Requirements: "x @ git+https://me:pw@example.com/x\n"}, pyenv.ErrSpec, []string{"archive of the commit"}},
		"an odd version":      {pyenv.Spec{Python: "2.7"}, pyenv.ErrSpec, []string{`python "2.7"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := s
			if errors.Is(c.class, pyenv.ErrNetwork) { // it tries to bring a newer pip, which others use meanwhile
				s = pyenv.Store{Dir: t.TempDir()}
			}
			_, err := s.Make(t.Context(), c.spec, pyenv.Options{Agree: refuse})
			require.Error(t, err)
			require.NotErrorIs(t, err, pyenv.ErrRefused)
			require.ErrorIs(t, err, c.class)
			for _, text := range c.says {
				require.ErrorContains(t, err, text)
			}
			require.NotContains(t, err.Error(), "me:pw")
		})
	}
}

func TestAPackageThatIsReplacedAfterTheLockIsRefused(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	dir, find := wheels(t)
	spec := pyenv.Spec{Requirements: find + "old\n"}
	_, err := s.Make(t.Context(), spec, pyenv.Options{Pip: true, Agree: func(context.Context, pyenv.Plan) error {
		_, err := pywheel.Write(dir, "dep", "1.0", "import os\n")
		return err
	}})
	require.ErrorIs(t, err, pyenv.ErrHash)
	require.ErrorContains(t, err, "do not use it")
	_, err = s.Find(spec)
	require.ErrorIs(t, err, pyenv.ErrMissing)
	onlyHidden(t, s)
}

func TestADiskWithoutRoomIsSaidBeforeAnybodyIsAsked(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	_, find := wheels(t)
	_, err := s.Make(t.Context(), pyenv.Spec{Requirements: find + "old\n"}, pyenv.Options{
		Free: func(string) (int64, error) { return 1, nil }, Agree: refuse,
	})
	require.ErrorIs(t, err, pyenv.ErrSpace)
	require.ErrorContains(t, err, "REWARDLOOP_ENVS")
	onlyHidden(t, s)
}

// Programs named uv that do what a full disk, a broken uv and a killed maker look like.
func TestUVIsUsedWhereItIsAndItsFailuresAreKnown(t *testing.T) {
	s := newStore(t)
	_, find := wheels(t)
	spec := pyenv.Spec{Requirements: find + "old\n"}
	bin := t.TempDir()
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	uv := func(script string) {
		executable.Write(t, filepath.Join(bin, "uv"), "#!/bin/sh\n"+script)
	}
	uv("echo 'No space left on device (os error 28)' >&2; exit 2")
	_, err := s.Make(t.Context(), spec, pyenv.Options{})
	require.ErrorIs(t, err, pyenv.ErrSpace)
	require.ErrorContains(t, err, "free some")
	onlyHidden(t, s)

	uv("exec sleep 600")
	_, err = s.Make(t.Context(), spec, pyenv.Options{Timeout: 8 * time.Second})
	require.ErrorContains(t, err, "not done after 8s")
	onlyHidden(t, s)

	uv("echo 'error: something of its own' >&2; exit 2")
	noted := ""
	e, err := s.Make(t.Context(), spec, pyenv.Options{Progress: func(e pyenv.Event) {
		if e.Stage == pyenv.Noted {
			noted = e.Note
		}
	}})
	require.NoError(t, err, "pip does it")
	require.Equal(t, "pip", e.Tool)
	require.Contains(t, noted, "something of its own")
}

func TestRemoveFreesWhatNobodyUses(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	_, find := wheels(t)
	spec := pyenv.Spec{Requirements: find + "old\n"}
	e, err := s.Make(t.Context(), spec, pyenv.Options{})
	require.NoError(t, err)
	for _, name := range []string{"nothing", "../" + filepath.Base(s.Dir), ".pip", "py3.11-0000000000000000"} {
		_, err = s.Remove(name)
		require.ErrorIs(t, err, pyenv.ErrUnknown, name)
	}
	l, err := s.Lock(e.Name)
	require.NoError(t, err)
	_, err = s.Remove(e.Name)
	require.ErrorIs(t, err, pyenv.ErrBusy)
	require.NoError(t, l.Close())

	used := exec.CommandContext(t.Context(), e.Interpreter, "-c", "print('up', flush=True); input()")
	in, err := used.StdinPipe()
	require.NoError(t, err)
	out, err := used.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, used.Start())
	_, err = out.Read(make([]byte, 2))
	require.NoError(t, err)
	if _, statErr := os.Stat("/proc/self/cmdline"); statErr == nil {
		_, err = s.Remove(e.Name)
		require.ErrorIs(t, err, pyenv.ErrBusy)
		require.ErrorContains(t, err, "end that process first")
	}
	require.NoError(t, in.Close())
	_ = used.Wait() // input() ends with an error

	freed, err := s.Remove(e.Name)
	require.NoError(t, err)
	require.Positive(t, freed)
	_, err = s.Find(spec)
	require.ErrorIs(t, err, pyenv.ErrMissing)
	onlyHidden(t, s)
}

func TestAnEnvironmentWhosePythonIsGoneSaysSo(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	at, err := exec.LookPath("python3")
	require.NoError(t, err)
	spec := pyenv.Spec{Python: at}
	e, err := s.Make(t.Context(), spec, pyenv.Options{Agree: func(_ context.Context, p pyenv.Plan) error {
		require.Empty(t, p.Packages)
		return nil
	}})
	require.NoError(t, err)
	require.NoError(t, os.Remove(e.Interpreter))
	_, err = s.Find(spec)
	require.ErrorIs(t, err, pyenv.ErrPython)
	require.ErrorContains(t, err, "rewardloop env remove "+e.Name)
	require.True(t, s.Gone(e))
}

func TestACancelledMakerEndsItsProgramsAndLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	_, find := wheels(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("somebody has pressed the keys")
	_, err := s.Make(ctx, pyenv.Spec{Requirements: find + "old\n"}, pyenv.Options{Progress: func(e pyenv.Event) {
		if e.Stage == pyenv.Installing {
			cancel(stopped)
		}
	}})
	require.ErrorIs(t, err, stopped)
	onlyHidden(t, s)
}
