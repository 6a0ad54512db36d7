//go:build cgo

package ort

/*
#include <pthread.h>
#include <signal.h>
#include <string.h>

#define SIGNALS 65

struct handlers { struct sigaction of[SIGNALS]; };

static void save_handlers(struct handlers *h) {
	for (int s = 1; s < SIGNALS; s++) sigaction(s, 0, &h->of[s]);
}

static int restore_handlers(struct handlers *h) {
	int n = 0;
	for (int s = 1; s < SIGNALS; s++) {
		struct sigaction now;
		if (sigaction(s, 0, &now)) continue;
		if (now.sa_handler == h->of[s].sa_handler && now.sa_flags == h->of[s].sa_flags) continue;
		if (!sigaction(s, &h->of[s], 0)) n++;
	}
	return n;
}

static unsigned long this_thread(void) { return (unsigned long)pthread_self(); }
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// loaded is the library of this process, which can have but one and keeps it: the
// bindings hold it in globals of theirs.
var loaded struct { //nolint:gochecknoglobals // one per process, as in the bindings
	mu   sync.Mutex
	from string
}

// telemetryEnv keeps the library from reporting its use.
const telemetryEnv = "ORT_DISABLE_TELEMETRY"

// load loads the library, once per process.
func load(lib Library) error {
	loaded.mu.Lock()
	defer loaded.mu.Unlock()
	if loaded.from != "" {
		if loaded.from != lib.Path {
			return fmt.Errorf("%w: this process has loaded ONNX Runtime from %s and cannot load %s too", infer.ErrUnavailable, loaded.from, lib.Path)
		}
		return nil
	}
	// From 1.29 on the library reports its use to its maker over the network, unless this says no
	// before it starts; and 1.29 crashes in doing so where there is neither /etc/machine-id nor
	// /bin/sh, as in small containers (microsoft/onnxruntime#32173).
	if err := os.Setenv(telemetryEnv, "1"); err != nil {
		return fmt.Errorf("%w: %w", infer.ErrUnavailable, err)
	}
	ort.SetSharedLibraryPath(lib.Path)
	// What it logs goes to stderr and is in the errors that it returns, too.
	if err := ort.InitializeEnvironment(ort.WithLogLevelFatal()); err != nil {
		return fmt.Errorf("%w: loading ONNX Runtime %s from %s, where %s or newer is needed: %w", infer.ErrUnavailable, lib.Version, lib.Path, minVersion, err)
	}
	loaded.from = lib.Path
	return nil
}

// thread names the thread it is called on.
func thread() uint64 { return uint64(C.this_thread()) }

// keepSignals calls f and gives back the signal handlers that f replaced: CUDA's
// libraries install some without SA_ONSTACK, over which a Go program panics at its
// next signal. Or-ing the flag in is not enough, Go would not see the signal.
func keepSignals(f func() error) error {
	var before C.struct_handlers
	C.save_handlers(&before)
	defer C.restore_handlers(&before)
	return f()
}

// sessionOptions are the options of a session on its device. The caller destroys them.
func sessionOptions(cfg SessionConfig) (*ort.SessionOptions, error) {
	o, err := ort.NewSessionOptions()
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		// One thread per run and a run per core: on two cores 23 images/s with a ViT-S,
		// where two threads that spin gave 13.
		o.SetIntraOpNumThreads(1),
		o.SetInterOpNumThreads(1),
		o.AddSessionConfigEntry("session.intra_op.allow_spinning", "0"),
		o.AddSessionConfigEntry("session.inter_op.allow_spinning", "0"),
		// Measured with a text detector and 40 pictures of 320 to 992 pixels a side, in
		// MB after the first 20 and after all: arena without patterns 209 and 216, both
		// 218 and 260, patterns alone 210 and 303, neither 240 and 260, an arena shrunk
		// after every run 194 and 376.
		o.SetCpuMemArena(true),
		o.SetMemPattern(false),
	)
	if err == nil && cfg.cuda() {
		err = errors.Join(o.AddSessionConfigEntry(recordPlacement, "1"), provide(o, cfg))
	}
	if err != nil {
		return nil, errors.Join(err, o.Destroy())
	}
	return o, nil
}

// provide has the card run the session.
func provide(o *ort.SessionOptions, cfg SessionConfig) error {
	if cfg.hooks.provide != nil {
		return cfg.hooks.provide()
	}
	return appendCUDA(o, cfg)
}

// appendCUDA puts the CUDA provider before the CPU's.
func appendCUDA(o *ort.SessionOptions, cfg SessionConfig) error {
	cu, err := ort.NewCUDAProviderOptions()
	if err != nil {
		return err
	}
	defer func() { _ = cu.Destroy() }() // it cannot fail
	options := map[string]string{
		"device_id": strconv.Itoa(cfg.Ordinal),
		// The default doubles the arena, which for shapes that vary ends at the device's limit.
		"arena_extend_strategy":     "kSameAsRequested",
		"cudnn_conv_algo_search":    cfg.CUDA.ConvAlgoSearch,
		"do_copy_in_default_stream": "1",
		// Products of inputs rounded to 10 bits of mantissa would make scores differ from the CPU's
		// in the third digit.
		"use_tf32": "0",
	}
	if err := cu.Update(options); err != nil {
		return err
	}
	return o.AppendExecutionProviderCUDA(cu)
}

// lookAround says what the loaded library is, and tries the CUDA provider.
func lookAround(lib Library) *about {
	a := &about{Version: ort.GetVersion()}
	if !lib.CUDA {
		a.CUDA = noCUDA(lib).Error()
		return a
	}
	err := keepSignals(func() error {
		o, err := sessionOptions(SessionConfig{Model: infer.Model{Device: "cuda:0"}, CUDA: CUDA{}.withDefaults()})
		if err != nil {
			return err
		}
		return o.Destroy()
	})
	if err != nil {
		a.CUDA = err.Error()
	}
	return a
}
