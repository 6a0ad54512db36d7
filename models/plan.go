package models

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// askFor bounds the question for the sizes of a model's files, all of them together.
const askFor = 15 * time.Second

// task is a file of a pull and what was found in its place.
type task struct {
	File
	found Status
	size  int64 // in bytes, as far as it is known before the download; else 0
	gone  bool  // the endpoint says that it has none
}

// here is true if nothing has to be done.
func (t task) here() bool { return t.found.OK }

// fetched is true if the file has to come from its source.
func (t task) fetched() bool { return !t.here() && (!t.found.Present || t.found.Want != "") }

// elsewhere is true if it does not come out of the program itself.
func (t task) elsewhere() bool { return !strings.HasPrefix(t.Source, "embed://") }

// plan looks at every file of the model, and if something is missing it asks for
// its size, says what will come, and refuses a licence that is not accepted and a
// disk without room: all before the first byte. Optional files come first, so that
// they have been asked for if everything else is there.
func (p *puller) plan(ctx context.Context, o Options) ([]task, error) {
	tasks := make([]task, 0, len(p.model.Files))
	for _, f := range p.model.Files {
		st, err := p.found(ctx, f)
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, task{File: f, found: st, size: f.Size})
	}
	if !slices.ContainsFunc(tasks, func(t task) bool { return t.fetched() && t.elsewhere() }) {
		return tasks, nil
	}
	if l := p.model.Licence; l.NonCommercial && !o.AcceptLicence {
		return nil, fmt.Errorf("%w: %s (%s, %s) does not allow every use; read it, and say --accept-licence if you agree",
			errLicence, l.SPDX, l.Holder, l.URL)
	}
	for i := range tasks {
		if tasks[i].found.Absent {
			tasks[i].found.OK, tasks[i].found.Absent = false, false
		}
	}
	p.measure(ctx, tasks)
	slices.SortStableFunc(tasks, func(a, b task) int { return order(a.Optional) - order(b.Optional) })
	return tasks, p.foretell(tasks)
}

func order(optional bool) int {
	if optional {
		return 0
	}
	return 1
}

// found looks at one file, and clears up whose it is.
func (p *puller) found(ctx context.Context, f File) (Status, error) {
	st := p.look(ctx, f, p.known)
	if ctx.Err() != nil {
		return st, context.Cause(ctx)
	}
	if e, had := p.known.Files[f.Name]; had && f.SHA256 == "" && e.Source != f.Source {
		if st.Present {
			return st, fmt.Errorf("%w: %s is here from %s, and %s is something else: remove %s first", errTaken, f.Name, e.Source, f.Source, st.Path)
		}
		st.Want, st.Recorded = "", false // that was the other's sum
		delete(p.known.Files, f.Name)
	}
	if st.Present && st.SHA256 == "" {
		return st, st.Err // a folder, or not readable: not ours to replace
	}
	return st, nil
}

// foretell says what will come, and whether there is room for it.
func (p *puller) foretell(tasks []task) error {
	e := Event{Model: p.model.Name, Stage: Planned}
	var part int64
	for _, t := range tasks {
		if !t.fetched() || t.gone {
			continue
		}
		e.Files++
		if e.Total += t.size; t.size == 0 {
			e.Unknown++
		}
		if n, err := sizeOf(t.found.Path + partSuffix); err == nil {
			part += min(n, t.size)
		}
	}
	p.progress(e)
	free, err := p.Free(p.Dir)
	if err != nil {
		return nil //nolint:nilerr // Who cannot be asked says nothing; a full disk ends the download.
	}
	if need := e.Total - part; need > free {
		return fmt.Errorf("%w: %d bytes are to come and %s has %d free: make room, or name another folder with --dir or REWARDLOOP_MODELS",
			errNoSpace, need, p.Dir, free)
	}
	return nil
}

// measure asks for the sizes that the catalogue does not know. Who does not answer
// in time leaves them unknown; the download will tell.
func (p *puller) measure(ctx context.Context, tasks []task) {
	ctx, cancel := context.WithTimeout(ctx, min(askFor, p.Stall))
	defer cancel()
	for i := range tasks {
		t := &tasks[i]
		if !t.fetched() || t.size > 0 || ctx.Err() != nil {
			continue
		}
		switch src, _ := ParseSource(t.Source); src := src.(type) {
		case fileSource:
			if info, err := os.Stat(src.Path); err == nil && info.Mode().IsRegular() {
				t.size = info.Size()
			}
		case HubSource:
			var sum string
			t.size, sum, t.gone = p.ask(ctx, src.address(p.Endpoint))
			if sum != "" {
				p.announced[t.Name] = sum
			}
			t.gone = t.gone && t.Optional
		}
	}
}

// ask returns what an endpoint says of a file: its size, its SHA-256, and whether it
// has none. A Hugging Face endpoint says so with the redirect to where the bytes
// are (X-Linked-Size, X-Linked-ETag), others at the end of it (Content-Length).
func (p *puller) ask(ctx context.Context, address string) (size int64, sum string, gone bool) {
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, address, http.NoBody)
	if err != nil {
		return 0, "", false
	}
	if p.Token != "" {
		req.Header.Set("Authorization", "Bearer "+p.Token)
	}
	client := *p.client
	client.CheckRedirect = func(next *http.Request, via []*http.Request) error {
		if next.Response != nil && next.Response.Header.Get("X-Linked-Size") != "" {
			return http.ErrUseLastResponse
		}
		return p.client.CheckRedirect(next, via)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", false
	}
	_ = resp.Body.Close()
	if tag := strings.Trim(resp.Header.Get("X-Linked-ETag"), `"`); plainSum.MatchString(tag) && resp.Request.URL.Host == req.URL.Host {
		sum = tag
	}
	size, err = strconv.ParseInt(resp.Header.Get("X-Linked-Size"), 10, 64)
	switch {
	case err == nil && size > 0 && resp.StatusCode < http.StatusBadRequest:
	case resp.StatusCode == http.StatusOK:
		size = max(resp.ContentLength, 0)
	default:
		size, sum = 0, ""
	}
	return size, sum, resp.StatusCode == http.StatusNotFound && noSuchFile(resp)
}
