//go:build nvml && cgo

package cards

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func init() {
	library = func(ctx context.Context, limit time.Duration) ([]gpu, []string, error) {
		return ask(ctx, limit, nvml.New())
	}
}

// ask lists the cards of the machine by NVML, in this process. A driver that hangs is left to
// itself when the time is up; so is the goroutine that waits for it.
func ask(parent context.Context, limit time.Duration, lib nvml.Interface) ([]gpu, []string, error) {
	ctx, cancel := context.WithTimeout(parent, limit)
	defer cancel()
	type answer struct {
		all   []gpu
		notes []string
		err   error
	}
	said := make(chan answer, 1)
	go func() { // ends with the driver's answer, for which ask waits until the time is up
		var a answer
		a.all, a.notes, a.err = machineOf(lib)
		said <- a
	}()
	select {
	case a := <-said:
		return a.all, a.notes, a.err
	case <-ctx.Done():
		if err := parent.Err(); err != nil {
			return nil, nil, fmt.Errorf("NVML: %w", err)
		}
		return nil, nil, fmt.Errorf("NVML did not answer within %s: the driver or a GPU hangs; search the kernel's log for NVRM and Xid, and restart the machine", limit)
	}
}

// machineOf are the cards that NVML lists. Without the library the error is errNoProgram.
func machineOf(lib nvml.Interface) (all []gpu, notes []string, err error) {
	switch ret := lib.Init(); ret {
	case nvml.SUCCESS:
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return nil, nil, errNoProgram
	default:
		return nil, []string{"NVML: " + lib.ErrorString(ret)}, nil
	}
	defer lib.Shutdown() // nothing can be done about its error
	n, ret := lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, nil, errors.New("NVML does not count the cards: " + lib.ErrorString(ret))
	}
	for i := range n {
		d, ret := lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			notes = append(notes, fmt.Sprintf("NVML: card %d: %s", i, lib.ErrorString(ret)))
			continue
		}
		all = append(all, cardOf(lib, i, d))
	}
	if len(all) == 0 && len(notes) == 0 {
		notes = []string{"NVML: no devices were found"}
	}
	return all, notes, nil
}

func cardOf(lib nvml.Interface, i int, d nvml.Device) gpu {
	g := gpu{Card: describe(lib, d, Card{Index: i, FreeBytes: -1, ECCErrors: -1})}
	if errs, ret := d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC); ret == nvml.SUCCESS {
		g.count(int64(errs)) //nolint:gosec // a count
	}
	if mode, _, ret := d.GetMigMode(); ret != nvml.SUCCESS || mode != nvml.DEVICE_MIG_ENABLE {
		return g
	}
	g.mig = true
	most, ret := d.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return g
	}
	for k := range most {
		part, ret := d.GetMigDeviceHandleByIndex(k)
		if ret != nvml.SUCCESS {
			continue // there is no instance of this number
		}
		c := describe(lib, part, Card{Index: i, Parent: g.UUID, FreeBytes: -1, ECCErrors: g.ECCErrors})
		c.Processes = g.Processes
		g.instances = append(g.instances, c)
	}
	return g
}

// describe fills in what cards and instances have alike.
func describe(lib nvml.Interface, d nvml.Device, c Card) Card {
	for _, x := range []struct {
		to  *string
		get func() (string, nvml.Return)
	}{{&c.UUID, d.GetUUID}, {&c.Name, d.GetName}} {
		text, ret := x.get()
		if ret == nvml.SUCCESS {
			*x.to = text
		} else if c.Sick == "" {
			c.Sick = "NVML reports " + strings.TrimSpace(lib.ErrorString(ret)) + ": reset the card (nvidia-smi --gpu-reset) or restart the machine"
		}
	}
	if m, ret := d.GetMemoryInfo(); ret == nvml.SUCCESS {
		c.MemoryBytes, c.FreeBytes = int64(m.Total), int64(m.Free) //nolint:gosec // bytes of a card
	}
	running, ret := d.GetComputeRunningProcesses()
	if ret != nvml.SUCCESS {
		return c
	}
	for _, r := range running {
		p := Process{PID: int(r.Pid), Bytes: int64(r.UsedGpuMemory)} //nolint:gosec // all ones: not known
		if p.Name, ret = lib.SystemGetProcessName(p.PID); ret != nvml.SUCCESS {
			p.Name = ""
		}
		c.Processes = append(c.Processes, p)
	}
	return c
}
