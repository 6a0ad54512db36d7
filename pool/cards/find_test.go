package cards_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/pool/cards"
	"github.com/rewardloop/rewardloop/testkit/executable"
)

// fake writes a program that answers as nvidia-smi does: list to --query-gpu, instances to
// -L, apps to --query-compute-apps. It returns its path.
func fake(t *testing.T, list, instances, apps string) string {
	t.Helper()
	return program(t, fmt.Sprintf("case \"$1\" in\n--query-gpu=*) cat <<'END'\n%s\nEND\n;;\n-L) cat <<'END'\n%s\nEND\n;;\n--query-compute-apps=*) cat <<'END'\n%s\nEND\n;;\nesac\n",
		list, instances, apps))
}

// program writes a shell script named nvidia-smi.
func program(t *testing.T, script string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts a program")
	}
	path := filepath.Join(t.TempDir(), "nvidia-smi")
	executable.Write(t, path, "#!/bin/sh\n"+script)
	return path
}

// line is one card of 80 GiB.
func line(n int) string {
	return fmt.Sprintf("%d, GPU-%08d-aaaa-bbbb-cccc-dddddddddddd, NVIDIA H100 80GB HBM3, 81559, 81004, 0, Disabled", n, n)
}

func lines(n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = line(i)
	}
	return strings.Join(out, "\n")
}

func uuid(n int) string { return fmt.Sprintf("GPU-%08d-aaaa-bbbb-cccc-dddddddddddd", n) }

// find asks a program under a value of CUDA_VISIBLE_DEVICES; nil: it is not set.
func find(t *testing.T, path string, visible *string) (cards.Found, error) {
	t.Helper()
	return cards.Find(t.Context(), cards.Options{
		Program: path, DriverDir: filepath.Join(t.TempDir(), "none"), Timeout: 20 * time.Second,
		LookupEnv: func(name string) (string, bool) {
			if name == cards.VisibleEnv && visible != nil {
				return *visible, true
			}
			return "", false
		},
	})
}

func seen(found cards.Found) (out []string) {
	for _, c := range found.Cards {
		out = append(out, c.Visible())
	}
	return out
}

func TestEveryCardThatTheMachineHasIsFoundInOrder(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 8} {
		found, err := find(t, fake(t, lines(n), "", ""), nil)
		require.NoError(t, err)
		require.Len(t, found.Cards, n)
		assert.Equal(t, "nvidia-smi", found.Source)
		assert.Empty(t, found.Notes)
		for i, c := range found.Cards {
			assert.Equal(t, cards.Card{
				Index: i, UUID: uuid(i), Name: "NVIDIA H100 80GB HBM3", MemoryBytes: 81559 << 20, FreeBytes: 81004 << 20,
			}, c)
		}
	}
}

func TestAMachineWithoutCardsHasNoneAndThatIsNoError(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{
		"no program":   filepath.Join(t.TempDir(), "nvidia-smi"),
		"no devices":   program(t, "echo 'No devices were found'; exit 6\n"),
		"no driver":    program(t, "echo \"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\"; exit 9\n"),
		"other driver": program(t, "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18\n"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, err := find(t, path, nil)
			require.NoError(t, err)
			assert.Empty(t, found.Cards)
			assert.Empty(t, found.Source)
			require.Len(t, found.Notes, 1)
			if name == "no program" {
				assert.Contains(t, found.Notes[0], "is not on PATH, and no driver lists a GPU")
			} else {
				assert.Contains(t, found.Notes[0], "nvidia-smi: ")
			}
		})
	}
}

func TestTheProgramIsLookedForOnPath(t *testing.T) {
	t.Setenv("PATH", filepath.Dir(fake(t, lines(2), "", ""))+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv(cards.VisibleEnv, "1")
	found, err := cards.Find(t.Context(), cards.Options{})
	require.NoError(t, err)
	assert.Equal(t, []string{uuid(1)}, seen(found))
}

func TestCardsAreThoseOfCUDAVisibleDevicesInItsOrder(t *testing.T) {
	t.Parallel()
	path := fake(t, lines(8), "", "")
	for value, want := range map[string]struct {
		seen []string
		note string
	}{
		"3,0":                              {[]string{uuid(3), uuid(0)}, ""},
		" 5 , 2 ":                          {[]string{uuid(5), uuid(2)}, ""},
		uuid(4):                            {[]string{uuid(4)}, ""},
		"GPU-00000007,gpu":                 {[]string{uuid(7)}, `entry 2, "gpu", is not one of the machine's 8 cards`},
		"GPU-00000006," + uuid(1):          {[]string{uuid(6), uuid(1)}, ""},
		"GPU-0000000":                      {nil, "fits 8 cards"},
		"1,-1,2":                           {[]string{uuid(1)}, ""},
		"1,8,2":                            {[]string{uuid(1)}, `entry 2, "8", is not one`},
		"0,NoDevFiles":                     {[]string{uuid(0)}, `"NoDevFiles"`},
		"2,2":                              {[]string{uuid(2)}, "names a card a second time"},
		"-1":                               {nil, "hides all cards from this process"},
		"":                                 {nil, "hides all cards from this process"},
		"MIG-11111111-aaaa-bbbb-cccc-dddd": {nil, "is not one of the machine's 8 cards"},
	} {
		t.Run(value, func(t *testing.T) {
			t.Parallel()
			found, err := find(t, path, &value)
			require.NoError(t, err)
			assert.Equal(t, want.seen, seen(found))
			if want.note == "" {
				assert.Empty(t, found.Notes)
				return
			}
			require.Len(t, found.Notes, 1)
			assert.Contains(t, found.Notes[0], want.note)
		})
	}
}

const divided = `GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-aaaa-bbbb-cccc-dddddddddddd)
  MIG 3g.40gb     Device  0: (UUID: MIG-11111111-aaaa-bbbb-cccc-dddddddddddd)
  MIG 1g.10gb+me  Device  1: (UUID: MIG-22222222-aaaa-bbbb-cccc-dddddddddddd)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-00000001-aaaa-bbbb-cccc-dddddddddddd)`

func TestInstancesOfADividedCardAreCards(t *testing.T) {
	t.Parallel()
	path := fake(t, strings.Replace(line(0), "Disabled", "Enabled", 1)+"\n"+line(1), divided, uuid(0)+", 77, 1024, /usr/bin/python3, train.py")
	first, second := "MIG-11111111-aaaa-bbbb-cccc-dddddddddddd", "MIG-22222222-aaaa-bbbb-cccc-dddddddddddd"
	found, err := find(t, path, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{first, second, uuid(1)}, seen(found))
	assert.Equal(t, cards.Card{
		Index: 0, UUID: first, Name: "NVIDIA H100 80GB HBM3 MIG 3g.40gb", Parent: uuid(0), MemoryBytes: 40e9, FreeBytes: -1,
		Processes: []cards.Process{{PID: 77, Name: "/usr/bin/python3, train.py", Bytes: 1 << 30}},
	}, found.Cards[0])
	assert.Equal(t, int64(10e9), found.Cards[1].MemoryBytes)
	for value, want := range map[string][]string{
		"MIG-2222": {second}, "1,0": {uuid(1), first, second}, second + "," + first: {second, first}, uuid(0): {first, second},
	} {
		found, err := find(t, path, &value)
		require.NoError(t, err)
		assert.Equal(t, want, seen(found), value)
	}
}

func TestADividedCardWithoutInstancesIsSick(t *testing.T) {
	t.Parallel()
	found, err := find(t, fake(t, strings.Replace(line(0), "Disabled", "Enabled", 1), strings.Split(divided, "\n")[0], ""), nil)
	require.NoError(t, err)
	require.Len(t, found.Cards, 1)
	assert.Contains(t, found.Cards[0].Sick, "MIG is on and no instance is made")
}

func TestACardThatIsBrokenIsSickWithTheReason(t *testing.T) {
	t.Parallel()
	list := line(0) + "\n" +
		strings.Replace(line(1), ", 0, Disabled", ", 17, Disabled", 1) + "\n" +
		"2, [Unknown Error], [Unknown Error], [Unknown Error], [Unknown Error], [Unknown Error], [Unknown Error]\n" +
		"3, " + uuid(3) + ", NVIDIA H100 80GB HBM3, [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost]\n" +
		"4, " + uuid(4) + ", NVIDIA GB10, [N/A], [N/A], [N/A], [N/A]"
	found, err := find(t, fake(t, list, "", ""), nil)
	require.NoError(t, err)
	require.Len(t, found.Cards, 5)
	assert.Empty(t, found.Cards[0].Sick)
	assert.Contains(t, found.Cards[1].Sick, "17 uncorrected memory errors")
	assert.Contains(t, found.Cards[2].Sick, "[Unknown Error]")
	assert.Contains(t, found.Cards[3].Sick, "[GPU is lost]")
	assert.Empty(t, found.Cards[4].Sick, "what a card does not count is no illness")
	assert.Equal(t, cards.Card{Index: 4, UUID: uuid(4), Name: "NVIDIA GB10", FreeBytes: -1, ECCErrors: -1}, found.Cards[4])
}

func TestACardThatDoesNotAnswerIsNotedAndTheOthersAreThere(t *testing.T) {
	t.Parallel()
	path := program(t, "case \"$1\" in --query-gpu=*)\necho 'Unable to determine the device handle for GPU0000:41:00.0: GPU is lost.  Reboot the system to recover this GPU'\necho '"+line(1)+"'\nexit 15;; esac\n")
	found, err := find(t, path, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{uuid(1)}, seen(found))
	require.Len(t, found.Notes, 1)
	assert.Contains(t, found.Notes[0], "0000:41:00.0: GPU is lost")
}

func TestAnAnswerThatIsNoListOfCardsIsAnErrorInWords(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ script, want string }{
		"garbage":           {"head -c 300 /dev/zero | tr '\\000' '\\377'\n", "is not understood: 1 columns instead of 7"},
		"an old program":    {"echo 'Field \"mig.mode.current\" is not a valid field to query.'; exit 2\n", `is not a valid field to query."`},
		"half and dead":     {"printf '%s\\n0, GPU-0000' '" + line(0) + "'; kill -9 $$\n", "signal: killed"},
		"whole and dead":    {"echo '" + line(0) + "'; kill -9 $$\n", "the cards of the machine are unknown"},
		"a word for memory": {"echo '0, GPU-0, H100, lots, 1, 0, Disabled'\n", `"lots" is not a number`},
		"no uuid":           {"echo '0, 0, H100, 1, 1, 0, Disabled'\n", "no uuid"},
		"nothing":           {":\n", "printed nothing"},
		"too much":          {"exec cat /dev/zero\n", "wrote more than 1048576 bytes"},
		"instances garbled": {"case \"$1\" in --query-gpu=*) echo '" + strings.Replace(line(0), "Disabled", "Enabled", 1) + "';; *) echo what;; esac\n", `-L lists instances in a way that is not understood: "what"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, err := find(t, program(t, c.script), nil)
			require.ErrorContains(t, err, c.want)
			assert.Empty(t, found.Cards)
		})
	}
}

func TestAProgramThatHangsIsGivenUpWhenItsTimeIsUp(t *testing.T) {
	t.Parallel()
	path := program(t, "echo '"+line(0)+"'\nexec sleep 300\n")
	begun := time.Now()
	_, err := cards.Find(t.Context(), cards.Options{Program: path, Timeout: 200 * time.Millisecond, LookupEnv: func(string) (string, bool) { return "", false }})
	require.ErrorContains(t, err, "did not answer within 200ms: the driver or a GPU hangs")
	assert.Less(t, time.Since(begun), time.Minute)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = cards.Find(ctx, cards.Options{Program: path, LookupEnv: func(string) (string, bool) { return "", false }})
	require.ErrorIs(t, err, context.Canceled)
}

func TestProcessesThatCannotBeListedAreNoReasonToHaveNoCards(t *testing.T) {
	t.Parallel()
	path := program(t, "case \"$1\" in --query-gpu=*) echo '"+line(0)+"';; *) echo 'Insufficient Permissions'; exit 4;; esac\n")
	found, err := find(t, path, nil)
	require.NoError(t, err)
	require.Len(t, found.Cards, 1)
	require.Len(t, found.Notes, 1)
	assert.Contains(t, found.Notes[0], "what runs on the cards is not known")
}

func TestWithoutTheProgramTheDriverOrTheVariableSaysWhatThereIs(t *testing.T) {
	t.Parallel()
	dir, missing := t.TempDir(), filepath.Join(t.TempDir(), "nvidia-smi")
	for bus, text := range map[string]string{
		"0000:41:00.0": "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 12\nGPU UUID: \t " + uuid(1) + "\n",
		"0000:01:00.0": "Model: \t\t NVIDIA H100 80GB HBM3\nGPU UUID: \t " + uuid(0) + "\n",
	} {
		at := filepath.Join(dir, "gpus", bus)
		require.NoError(t, os.MkdirAll(at, 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(at, "information"), []byte(text), 0o600))
	}
	found, err := cards.Find(t.Context(), cards.Options{Program: missing, DriverDir: dir, LookupEnv: func(string) (string, bool) { return "", false }})
	require.NoError(t, err)
	assert.Equal(t, []string{uuid(0), uuid(1)}, seen(found))
	assert.Zero(t, found.Cards[0].MemoryBytes)
	require.Len(t, found.Notes, 1)

	value := "1,GPU-abc,-1,3"
	found, err = find(t, missing, &value)
	require.NoError(t, err)
	assert.Equal(t, []string{"1", "GPU-abc"}, seen(found))
	assert.Equal(t, cards.VisibleEnv, found.Source)
	require.Len(t, found.Notes, 1)
}

func TestNumbersOfCardsOfDifferentKindsAreNoted(t *testing.T) {
	t.Parallel()
	value := "0"
	found, err := find(t, fake(t, line(0)+"\n"+strings.Replace(line(1), "H100 80GB HBM3", "L4", 1), "", ""), &value)
	require.NoError(t, err)
	require.Len(t, found.Notes, 1)
	assert.Contains(t, found.Notes[0], "CUDA_DEVICE_ORDER=PCI_BUS_ID")
}
