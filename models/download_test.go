package models_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rewardloop/rewardloop/models"
)

func withCause(t *testing.T) (context.Context, context.CancelCauseFunc) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	return ctx, cancel
}

// scripted answers the nth request with the nth handler, and further ones with the last.
func scripted(t *testing.T, answers ...http.HandlerFunc) (*httptest.Server, *[]string) {
	t.Helper()
	ranges := &[]string{} // one request at a time: a pull's
	s := httptest.NewServer(withoutHead(func(w http.ResponseWriter, r *http.Request) {
		n := min(len(*ranges), len(answers)-1)
		*ranges = append(*ranges, r.Header.Get("Range"))
		answers[n](w, r)
	}))
	t.Cleanup(s.Close)
	return s, ranges
}

func whole(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("ETag", `"one"`)
	http.ServeContent(w, r, "m.onnx", time.Time{}, bytes.NewReader(body))
}

// cut gives the beginning of a whole answer and breaks off.
func cut(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("ETag", `"one"`)
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	_, _ = w.Write(body[:300_000])
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

func status(code int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
	}
}

func TestARangeThatCannotBeGivenBeginsAnew(t *testing.T) {
	t.Parallel()
	srv, ranges := scripted(t, cut, status(http.StatusRequestedRangeNotSatisfiable), whole)
	s := store(t, srv.URL)
	ok(t, s.Pull(t.Context(), hub(hexSum(body)), models.Options{}))
	if len(*ranges) != 3 || (*ranges)[1] == "" || (*ranges)[2] != "" {
		t.Fatalf("ranges %q", *ranges)
	}
	left, err := filepath.Glob(filepath.Join(s.Dir, "m.onnx.*"))
	ok(t, err)
	if len(left) != 0 {
		t.Fatalf("left %q", left)
	}
}

// A server that takes back what it gave never ends a download otherwise: each
// beginning looks like progress.
func TestAServerThatRefusesEveryRangeIsGivenUp(t *testing.T) {
	t.Parallel()
	n := 0
	srv, ranges := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		if n++; n%2 == 0 {
			status(http.StatusRequestedRangeNotSatisfiable)(w, r)
			return
		}
		cut(w, r)
	})
	want(t, store(t, srv.URL).Pull(t.Context(), hub(hexSum(body)), models.Options{}), models.ErrFetch, "attempts without progress")
	if len(*ranges) > 6 {
		t.Fatalf("%d requests", len(*ranges))
	}
}

func TestAnotherRangeThanTheOneAskedForBeginsAnew(t *testing.T) {
	t.Parallel()
	srv, ranges := scripted(t, cut, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes 5-%d/%d", len(body)-1, len(body)))
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(body[5:])
	}, whole)
	s := store(t, srv.URL)
	ok(t, s.Pull(t.Context(), hub(hexSum(body)), models.Options{}))
	if len(*ranges) != 3 || (*ranges)[2] != "" {
		t.Fatalf("ranges %q", *ranges)
	}
}

func TestTooManyRequestsAreRepeatedAndTheWaitIsTold(t *testing.T) {
	t.Parallel()
	soon := time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat) // as a date: over already
	srv, ranges := scripted(t, status(http.StatusTooManyRequests, "Retry-After", "0"),
		status(http.StatusTooManyRequests, "Retry-After", soon), whole)
	var told []string
	s := store(t, srv.URL)
	ok(t, s.Pull(t.Context(), hub(hexSum(body)), models.Options{Progress: func(e models.Event) {
		if e.Stage == models.Retrying {
			told = append(told, e.Note)
		}
	}}))
	if len(*ranges) != 3 || len(told) != 2 || !strings.Contains(told[0], "429") {
		t.Fatalf("%d requests, told %q", len(*ranges), told)
	}
}

func TestTheServersWaitIsKeptAndTheDeadlineEndsIt(t *testing.T) {
	t.Parallel()
	for _, after := range []string{"30", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)} {
		srv, ranges := scripted(t, status(http.StatusTooManyRequests, "Retry-After", after))
		waits := make(chan string, 1)
		ctx, cancel := withCause(t)
		go func() {
			note := <-waits
			cancel(fmt.Errorf("deadline: %s", note))
		}()
		err := store(t, srv.URL).Pull(ctx, hub(hexSum(body)), models.Options{Progress: func(e models.Event) {
			if e.Stage == models.Retrying {
				waits <- e.Note
			}
		}})
		if err == nil || !strings.Contains(err.Error(), "deadline: again in ") || strings.Contains(err.Error(), "again in 1ms") {
			t.Fatal(err)
		}
		if len(*ranges) != 1 {
			t.Fatalf("asked %d times", len(*ranges))
		}
	}
}

func TestTooManyRequestsForEverAreGivenUp(t *testing.T) {
	t.Parallel()
	srv, ranges := scripted(t, status(http.StatusTooManyRequests))
	want(t, store(t, srv.URL).Pull(t.Context(), hub(""), models.Options{}), models.ErrFetch, "429", "3 attempts")
	if len(*ranges) != 3 {
		t.Fatal(len(*ranges))
	}
}

func TestARefusalIsNotRepeatedAndSaysWhatToDo(t *testing.T) {
	t.Parallel()
	for code, says := range map[int]string{
		http.StatusUnauthorized: "HF_TOKEN", http.StatusForbidden: "HF_TOKEN", http.StatusNotFound: "repository and revision",
	} {
		srv, ranges := scripted(t, status(code))
		want(t, store(t, srv.URL).Pull(t.Context(), hub(""), models.Options{}), models.ErrFetch, says)
		if len(*ranges) != 1 {
			t.Fatalf("%d: asked %d times", code, len(*ranges))
		}
	}
}

func TestWhatWasLeftByABrokenPullIsGoneOnWithByTheNext(t *testing.T) {
	t.Parallel()
	srv, ranges := scripted(t, cut, status(http.StatusNotFound), whole)
	s := store(t, srv.URL)
	want(t, s.Pull(t.Context(), hub(hexSum(body)), models.Options{}), models.ErrFetch)
	info, err := os.Stat(filepath.Join(s.Dir, "m.onnx.part"))
	ok(t, err)
	ok(t, s.Pull(t.Context(), hub(hexSum(body)), models.Options{}))
	if want := fmt.Sprintf("bytes=%d-", info.Size()); info.Size() == 0 || (*ranges)[2] != want {
		t.Fatalf("ranges %q, want %q last", *ranges, want)
	}
}
