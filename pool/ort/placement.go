//go:build cgo

package ort

/*
#cgo linux LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// The bindings have no call for this part of the C API. Its table of functions only ever grows at
// its end, so that these places, of onnxruntime_c_api.h 1.29, hold for every later version.
enum { GET_MESSAGE = 2, RELEASE_STATUS = 93, ASSIGNMENT = 407, PROVIDER_OF = 408, API_VERSION = 29 };

typedef struct { void *const *(*get_api)(uint32_t); const char *(*version)(void); } api_base;

// failed copies what a status says and releases it.
static char *failed(void *const *api, void *status) {
	char *text = strdup(((const char *(*)(void *))api[GET_MESSAGE])(status));
	((void (*)(void *))api[RELEASE_STATUS])(status);
	return text;
}

// count_nodes counts the nodes of a session, and those of them that a provider has. It returns what
// went wrong, which the caller frees; 0: nothing.
static char *count_nodes(const char *library, void *session, const char *provider, size_t *mine, size_t *all) {
	void *so = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
	if (!so) return strdup("the library is not loaded");
	const api_base *(*base)(void) = (const api_base *(*)(void))dlsym(so, "OrtGetApiBase");
	void *const *api = base ? base()->get_api(API_VERSION) : 0;
	dlclose(so); // the bindings hold it, too
	if (!api) return strdup("the library has no such version of its interface");
	void *const *parts;
	void *status = ((void *(*)(void *, void *const **, size_t *))api[ASSIGNMENT])(session, &parts, all);
	if (status) return failed(api, status);
	for (size_t i = 0; i < *all; i++) {
		const char *of;
		status = ((void *(*)(void *, const char **))api[PROVIDER_OF])(parts[i], &of);
		if (status) return failed(api, status);
		if (!strcmp(of, provider)) ++*mine;
	}
	return 0;
}
*/
import "C"

import (
	"fmt"
	"reflect"
	"unsafe"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// recordPlacement has a session remember which provider has each of its nodes.
const recordPlacement = "session.record_ep_graph_assignment_info"

// placement counts the nodes of a session that was opened with recordPlacement, and those of them
// that a provider has.
func placement(session *ort.DynamicAdvancedSession, provider string) (mine, all int, err error) {
	library, name := C.CString(loaded.from), C.CString(provider)
	defer C.free(unsafe.Pointer(library))
	defer C.free(unsafe.Pointer(name))
	// The bindings keep their session to themselves; a test notices if its place changes.
	handle := reflect.ValueOf(session).Elem().FieldByName("s").Elem().FieldByName("ortSession").UnsafePointer()
	var of, sum C.size_t
	if text := C.count_nodes(library, handle, name, &of, &sum); text != nil {
		defer C.free(unsafe.Pointer(text))
		return 0, 0, fmt.Errorf("asking which provider has which node: %s", C.GoString(text))
	}
	return int(of), int(sum), nil //nolint:gosec // nodes of a graph
}

// onCard refuses a model of which a card would run nothing. ONNX Runtime puts the nodes that a
// provider cannot run on the CPU without a word. Its option session.disable_cpu_ep_fallback, which
// refuses a graph for a single one of them, is no help: what computes shapes goes to the CPU by
// design, and nearly every exported transformer has some.
func (s *Session) onCard() error {
	mine, all, err := placement(s.session, cudaProvider)
	added := 0 // nodes of create's, which a card can run always
	for _, p := range s.info.Outputs {
		if p.DType == string(infer.F16) && !s.cfg.keeps(p.Name) {
			added++
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("%w: %q: %w", infer.ErrUnavailable, s.cfg.Model.Name, err)
	case all > 0 && mine <= added:
		return fmt.Errorf("%w: %q from %s: %s can run none of its %d nodes, and the CPU would run all of them: write device: cpu, or export the model with operators and types that the card's provider has",
			infer.ErrModel, s.cfg.Model.Name, s.cfg.Model.Path, s.cfg.Model.Device, all)
	}
	return nil
}
