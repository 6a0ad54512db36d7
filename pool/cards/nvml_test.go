//go:build nvml && cgo

package cards_test

import (
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/pool/cards"
)

// nvmlCard is a card of 80 GiB; parts are its instances.
func nvmlCard(n int, errs uint64, parts ...nvml.Device) *mock.Device {
	return &mock.Device{
		GetUUIDFunc:       func() (string, nvml.Return) { return uuid(n), nvml.SUCCESS },
		GetNameFunc:       func() (string, nvml.Return) { return "NVIDIA H100", nvml.SUCCESS },
		GetMemoryInfoFunc: func() (nvml.Memory, nvml.Return) { return nvml.Memory{Total: 80 * gib, Free: 79 * gib}, nvml.SUCCESS },
		GetTotalEccErrorsFunc: func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
			return errs, nvml.SUCCESS
		},
		GetMigModeFunc: func() (int, int, nvml.Return) {
			return min(len(parts), nvml.DEVICE_MIG_ENABLE), 0, nvml.SUCCESS
		},
		GetMaxMigDeviceCountFunc: func() (int, nvml.Return) { return 7, nvml.SUCCESS },
		GetMigDeviceHandleByIndexFunc: func(k int) (nvml.Device, nvml.Return) {
			if k >= len(parts) {
				return nil, nvml.ERROR_NOT_FOUND
			}
			return parts[k], nvml.SUCCESS
		},
		GetComputeRunningProcessesFunc: func() ([]nvml.ProcessInfo, nvml.Return) {
			return []nvml.ProcessInfo{{Pid: 77, UsedGpuMemory: gib}}, nvml.SUCCESS
		},
	}
}

// driver has cards; nil is one that has fallen off its bus.
func driver(init nvml.Return, cards ...*mock.Device) *mock.Interface {
	return &mock.Interface{
		InitFunc: func() nvml.Return { return init }, ShutdownFunc: func() nvml.Return { return nvml.SUCCESS },
		ErrorStringFunc:    func(r nvml.Return) string { return "return " + r.String() },
		DeviceGetCountFunc: func() (int, nvml.Return) { return len(cards), nvml.SUCCESS },
		DeviceGetHandleByIndexFunc: func(i int) (nvml.Device, nvml.Return) {
			if cards[i] == nil {
				return nil, nvml.ERROR_GPU_IS_LOST
			}
			return cards[i], nvml.SUCCESS
		},
		SystemGetProcessNameFunc: func(int) (string, nvml.Return) { return "python", nvml.SUCCESS },
	}
}

func TestNVMLListsCardsAsNvidiaSmiDoes(t *testing.T) {
	t.Parallel()
	part := nvmlCard(9, 0)
	part.GetUUIDFunc = func() (string, nvml.Return) { return "MIG-1", nvml.SUCCESS }
	found, notes, err := cards.AskNVML(t.Context(), time.Minute, driver(nvml.SUCCESS, nvmlCard(0, 0), nvmlCard(1, 17), nil, nvmlCard(3, 0, part)))
	require.NoError(t, err)
	require.Len(t, found, 3)
	assert.Equal(t, cards.Card{
		Index: 0, UUID: uuid(0), Name: "NVIDIA H100", MemoryBytes: 80 * gib, FreeBytes: 79 * gib,
		Processes: []cards.Process{{PID: 77, Name: "python", Bytes: gib}},
	}, found[0])
	assert.Contains(t, found[1].Sick, "17 uncorrected memory errors")
	assert.Equal(t, "MIG-1", found[2].UUID)
	assert.Equal(t, uuid(3), found[2].Parent)
	require.Len(t, notes, 1)
	assert.True(t, strings.HasPrefix(notes[0], "NVML: card 2: "), notes[0])
}

func TestAMachineWhoseNVMLDoesNotStartHasNoCards(t *testing.T) {
	t.Parallel()
	found, notes, err := cards.AskNVML(t.Context(), time.Minute, driver(nvml.ERROR_DRIVER_NOT_LOADED))
	require.NoError(t, err)
	assert.Empty(t, found)
	assert.Len(t, notes, 1)
	_, _, err = cards.AskNVML(t.Context(), time.Minute, driver(nvml.ERROR_LIBRARY_NOT_FOUND))
	require.ErrorContains(t, err, "is not on PATH", "the next source is asked")
}

func TestNVMLThatHangsIsGivenUpWhenItsTimeIsUp(t *testing.T) {
	t.Parallel()
	hangs, release := driver(nvml.SUCCESS), make(chan struct{})
	hangs.InitFunc = func() nvml.Return {
		<-release
		return nvml.ERROR_TIMEOUT
	}
	defer close(release)
	_, _, err := cards.AskNVML(t.Context(), 50*time.Millisecond, hangs)
	require.ErrorContains(t, err, "NVML did not answer within 50ms")
}
