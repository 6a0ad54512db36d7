package models

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/internal/hfcache"
)

// askFor bounds the question for the sizes of a model's files, all of them together.
const askFor = 15 * time.Second

// task is a file of a pull and what was found in its place.
type task struct {
	File
	found Status
	size  int64 // in bytes, as far as it is known before the download; else 0
	gone  bool  // the endpoint says that it has none
	// cached is where the hub's cache has it; empty: nowhere that is known.
	cached string
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
		return nil, fmt.Errorf("%w: %s (%s, %s) does not allow every use; read the licence, and add --accept-licence if you agree",
			errLicence, l.SPDX, l.Holder, l.URL)
	}
	for i := range tasks {
		if tasks[i].found.Absent {
			tasks[i].found.OK, tasks[i].found.Absent = false, false
		}
	}
	p.lookInHub(tasks)
	p.measure(ctx, tasks)
	if err := p.online(tasks); err != nil {
		return nil, err
	}
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
			return st, fmt.Errorf("%w: %s was downloaded from %s, but %s is another source: remove %s first", errTaken, f.Name, e.Source, f.Source, st.Path)
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
		if !t.fetched() || t.gone || t.cached != "" || p.passedOver(t) {
			continue
		}
		e.Files++
		if e.Total += t.size; t.size == 0 {
			e.Unknown++
		}
		if n, err := sizeOf(t.found.Path + partSuffix); err == nil {
			part += min(n, t.size)
		}
		if left, is := p.entry(t); is {
			part += min(p.Hub.Left(left), t.size)
		}
	}
	if e.Files == 0 {
		return nil
	}
	p.progress(e)
	free, err := p.Free(p.Dir)
	if err != nil {
		return nil //nolint:nilerr // Who cannot be asked says nothing; a full disk ends the download.
	}
	if need := e.Total - part; need > free {
		return fmt.Errorf("%w: the download needs %d bytes and %s has %d free: free some, or name another folder with --dir or REWARDLOOP_MODELS",
			errNoSpace, need, p.Dir, free)
	}
	return nil
}

// measure asks for the sizes that the catalogue does not know, and for what the hub's
// cache is to know of a file that will be kept there. Who does not answer in time
// leaves them unknown; the download will tell.
func (p *puller) measure(ctx context.Context, tasks []task) {
	ctx, cancel := context.WithTimeout(ctx, min(askFor, p.Stall))
	defer cancel()
	for i := range tasks {
		t := &tasks[i]
		if !t.fetched() || t.cached != "" || t.gone || ctx.Err() != nil {
			continue
		}
		switch src, _ := ParseSource(t.Source); src := src.(type) {
		case fileSource:
			if info, err := os.Stat(src.Path); err == nil && info.Mode().IsRegular() {
				t.size = info.Size()
			}
		case HubSource:
			if p.Offline == "" && (t.size == 0 || p.fills()) {
				p.enquire(ctx, t, src)
			}
		}
	}
}

// enquire asks the endpoint for a file.
func (p *puller) enquire(ctx context.Context, t *task, src HubSource) {
	a := p.ask(ctx, src.address(p.Endpoint))
	p.answers[t.Name] = a
	if t.size == 0 {
		t.size = a.size
	}
	t.gone = a.gone && t.Optional
	p.settleRevision(t, src, a)
}

// answer is what an endpoint says of a file.
type answer struct {
	size         int64  // in bytes; 0: it does not say
	sum          string // the SHA-256, as it announces it; empty: it does not
	commit, etag string // what the hub's cache knows the file by; empty: it is no hub
	gone         bool   // it has none
}

// ask returns what an endpoint says of a file. A Hugging Face endpoint says so with
// the redirect to where the bytes are (X-Linked-Size, X-Linked-ETag), others at the
// end of it (Content-Length). What else it says counts from itself alone, not from the
// host that it redirects to.
func (p *puller) ask(ctx context.Context, address string) (a answer) {
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, address, http.NoBody)
	if err != nil {
		return a
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
		return a
	}
	_ = resp.Body.Close()
	own := resp.Request.URL.Host == req.URL.Host
	a.gone = resp.StatusCode == http.StatusNotFound && noSuchFile(resp)
	if commit := resp.Header.Get("X-Repo-Commit"); own && hfcache.IsCommit(commit) {
		a.commit = commit
	}
	linked, err := strconv.ParseInt(resp.Header.Get("X-Linked-Size"), 10, 64)
	switch {
	case err == nil && linked > 0 && resp.StatusCode < http.StatusBadRequest:
		a.size = linked
	case resp.StatusCode == http.StatusOK:
		a.size = max(resp.ContentLength, 0)
	default:
		return a
	}
	tag := plainTag(resp.Header.Get("X-Linked-ETag"))
	if own && plainSum.MatchString(tag) {
		a.sum = tag
	}
	if tag = cmp.Or(tag, plainTag(resp.Header.Get("ETag"))); own && hfcache.IsETag(tag) {
		a.etag = tag
	}
	return a
}

// plainTag is an ETag without its quotes and the mark of a weak one.
func plainTag(tag string) string { return strings.Trim(strings.TrimPrefix(tag, "W/"), `"`) }
