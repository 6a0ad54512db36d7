package models

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/internal/hfcache"
)

const (
	// tagSuffix is appended to a .part's name for the file with its address and ETag.
	tagSuffix    = ".tag"
	maxBackoff   = 30 * time.Second
	maxRedirects = 5
)

// newClient follows redirects to https or to the same host only, and hands the
// token to no other host.
func newClient(c Config) *http.Client {
	transport := c.Transport
	if transport == nil {
		transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 30 * time.Second,
			DisableCompression: true, // Ranges and ETags are those of the file itself.
		}
	}
	return &http.Client{Transport: transport, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		switch {
		case len(via) > maxRedirects:
			return fmt.Errorf("%w: more than %d redirects", errFetch, maxRedirects)
		case req.URL.Host != via[len(via)-1].URL.Host && req.URL.Scheme != "https":
			return fmt.Errorf("%w: redirected to %s://%s: another host must be https", errFetch, req.URL.Scheme, req.URL.Host)
		case req.URL.Scheme != "https" && via[len(via)-1].URL.Scheme == "https":
			return fmt.Errorf("%w: redirected from https to %s", errFetch, req.URL.Scheme)
		}
		if req.URL.Host != via[0].URL.Host {
			req.Header.Del("Authorization")
		}
		return nil
	}}
}

// finalError is one that a further attempt would not change.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// download brings address to part, in as many attempts as bring something new.
func (p *puller) download(ctx context.Context, f File, address, part string) error {
	idle := 0 // attempts in a row that brought no more than there ever was
	most, err := sizeOf(part)
	if err != nil {
		return err
	}
	for {
		wait, err := p.attempt(ctx, f, address, part)
		var final finalError
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &final):
			return final.error
		}
		idle++
		// The most there ever was, not the size before: a server that makes one begin
		// anew each time is no progress.
		if now, sizeErr := sizeOf(part); sizeErr == nil && now > most {
			most, idle = now, 1
		}
		if idle >= p.Attempts {
			return fmt.Errorf("%w (%d attempts without progress; downloads are kept; check the network, or set HF_ENDPOINT to a mirror that has the file)",
				err, idle)
		}
		wait = max(wait, min(p.Backoff<<(idle-1), maxBackoff))
		p.tell(f, Retrying, 0, f.Size, fmt.Sprintf("again in %v: %v", wait, err))
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// attempt asks once, for the rest if there is a beginning. wait is what the
// server asked for before the next one.
func (p *puller) attempt(ctx context.Context, f File, address, part string) (wait time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := fmt.Errorf("%w: %s sent no data for %v", errStalled, hostOf(address), p.Stall)
	watch := time.AfterFunc(p.Stall, func() { cancel(stalled) })
	defer watch.Stop()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return 0, finalError{fmt.Errorf("%w: %w", ErrSource, err)}
	}
	if p.Token != "" {
		req.Header.Set("Authorization", "Bearer "+p.Token)
	}
	have, tag := resumable(part, address)
	if have > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", have))
		if tag != "" {
			req.Header.Set("If-Range", tag)
		}
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return 0, fetchError(ctx, err)
	}
	defer resp.Body.Close()
	from, err := p.begin(resp, f, part, have)
	if err != nil {
		return retryAfter(resp), err
	}
	out, err := p.open(part, address, resp.Header.Get("ETag"), from)
	if err != nil {
		return 0, finalError{err}
	}
	total := from + resp.ContentLength
	if resp.ContentLength < 0 {
		total = f.Size
	}
	n, err := p.pour(f, out, &watchedReader{resp.Body, watch, p.Stall}, from, total)
	if closeErr := out.Close(); closeErr != nil {
		return 0, finalError{closeErr}
	}
	switch {
	case errors.Is(err, errTooLarge):
		_ = os.Remove(part)
		return 0, finalError{err}
	case errors.Is(err, errFetch):
		return 0, fetchError(ctx, err)
	case err != nil:
		return 0, finalError{err} // the disk
	case resp.ContentLength >= 0 && n < resp.ContentLength:
		return 0, fmt.Errorf("%w: %s: the connection ended %d bytes early", errFetch, f.Name, resp.ContentLength-n)
	}
	return 0, nil
}

// begin judges an answer and returns the offset its body begins at.
func (p *puller) begin(resp *http.Response, f File, part string, have int64) (int64, error) {
	host := resp.Request.URL.Host
	switch code := resp.StatusCode; {
	case code == http.StatusOK:
		if n := resp.ContentLength; n > p.limit(f) {
			return 0, finalError{fmt.Errorf("%w: %s from %s has %d bytes, the limit is %d", errTooLarge, f.Name, f.Source, n, p.limit(f))}
		}
		return 0, nil
	case code == http.StatusPartialContent && have > 0:
		if strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", have)) {
			return have, nil
		}
		_ = os.Remove(part)
		return 0, fmt.Errorf("%w: %s sent another range than requested (%q)", errFetch, host, resp.Header.Get("Content-Range"))
	case code == http.StatusRequestedRangeNotSatisfiable:
		// All of it is there already, or the wrong thing: the sum would tell, a fresh start is simpler.
		_ = os.Remove(part)
		_ = os.Remove(part + tagSuffix)
		return 0, fmt.Errorf("%w: %s has no data after the %d bytes already downloaded", errFetch, host, have)
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return 0, finalError{fmt.Errorf("%w: %s answers %s for %s: %s", errFetch, host, resp.Status, f.Source, p.admission(resp))}
	case code == http.StatusTooManyRequests || code == http.StatusRequestTimeout || code >= 500:
		return 0, fmt.Errorf("%w: %s answers %s for %s", errFetch, host, resp.Status, f.Source)
	case code == http.StatusNotFound && noSuchFile(resp):
		return 0, finalError{fmt.Errorf("%w: %s answers %s for %s: %w, or the endpoint does not have that repository and revision", errFetch, host, resp.Status, f.Source, errNoSuchFile)}
	default:
		return 0, finalError{fmt.Errorf("%w: %s answers %s for %s: does the endpoint have that repository and revision?", errFetch, host, resp.Status, f.Source)}
	}
}

// admission says what to do where a token is wanted.
func (p *puller) admission(resp *http.Response) string {
	const login = "set HF_TOKEN, or run `hf auth login`, "
	switch resp.Header.Get("X-Error-Code") {
	case "GatedRepo":
		return "the owner of the repository requires an agreement: agree on the repository's page, then " + login + "with a token of that account"
	case "RepoNotFound":
		return "the repository does not exist or is private: check the name, or " + login + "with a token of an account that may read it"
	}
	return login + "with a token of an account that may read the repository and has agreed to its conditions"
}

// noSuchFile is true if only the file may be missing: a Hugging Face endpoint says
// in X-Error-Code when the repository or the revision is.
func noSuchFile(resp *http.Response) bool {
	code := resp.Header.Get("X-Error-Code")
	return code == "" || code == "EntryNotFound"
}

// open opens part for the bytes from an offset on and notes what they belong to.
// Only a strong ETag promises the same bytes the next time.
func (p *puller) open(part, address, tag string, from int64) (*os.File, error) {
	if from > 0 {
		return os.OpenFile(part, os.O_WRONLY|os.O_APPEND, 0o644)
	}
	if tag == "" || strings.HasPrefix(tag, "W/") || hfcache.IsPartial(part) {
		_ = os.Remove(part + tagSuffix)
	} else if err := os.WriteFile(part+tagSuffix, []byte(address+"\n"+tag+"\n"), 0o644); err != nil {
		return nil, err
	}
	return os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
}

// resumable returns how much of address lies in part, and its ETag; 0: begin anew.
// Of the hub's cache the name says what the bytes belong to.
func resumable(part, address string) (int64, string) {
	if hfcache.IsPartial(part) {
		have, err := sizeOf(part)
		if err != nil {
			return 0, ""
		}
		return have, ""
	}
	text, err := os.ReadFile(part + tagSuffix)
	if err != nil {
		return 0, ""
	}
	from, tag, _ := strings.Cut(strings.TrimSuffix(string(text), "\n"), "\n")
	have, err := sizeOf(part)
	if err != nil || from != address || tag == "" {
		return 0, ""
	}
	return have, tag
}

// watchedReader puts off the end of patience at every byte.
type watchedReader struct {
	in    io.Reader
	watch *time.Timer
	stall time.Duration
}

func (r *watchedReader) Read(p []byte) (int, error) {
	n, err := r.in.Read(p)
	if n > 0 {
		r.watch.Reset(r.stall)
	}
	return n, err
}

// fetchError prefers why the request was given up to what that looked like.
func fetchError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if outer, is := errors.AsType[*url.Error](err); is { // says address and method again
		err = outer.Err
	}
	if errors.Is(err, errFetch) {
		return err
	}
	return fmt.Errorf("%w: %w", errFetch, err)
}

// maxRetryAfter bounds the wait that a server may ask for.
const maxRetryAfter = time.Minute

// retryAfter is the wait that an answer asks for, in seconds or as a date; 0: none.
func retryAfter(resp *http.Response) time.Duration {
	text := resp.Header.Get("Retry-After")
	if at, err := http.ParseTime(text); err == nil {
		return min(max(time.Until(at), 0), maxRetryAfter)
	}
	seconds, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, maxRetryAfter)
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	return u.Host
}
