package outbound

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

const (
	// quoteBytes and quoteTime bound the reading of an answer that is a failure: it is
	// only read to be quoted, and so that its connection can be used again.
	quoteBytes = 16 << 10
	quoteTime  = 2 * time.Second
	// illAfter is how long a request must have gone unanswered, when its caller's time
	// ends, to count as a failure of the endpoint. Else an endpoint that hangs would
	// never be taken out of service by callers who wait less than Timeout.
	illAfter = 10 * time.Second
)

// send sends the call to e once and judges the answer.
func (t *try) send(ctx context.Context, e *endpoint) (*Answer, *failure) {
	g, c := t.g, t.call
	until, cancel := context.WithTimeout(ctx, g.cfg.Timeout)
	defer cancel()
	a := &attempt{g: g, call: c, ctx: ctx, until: until, start: time.Now(), at: e.name + pathOnly(c.Path), key: g.secrets.bearer()}
	payload := &payload{data: c.Body}
	defer payload.release()
	req, err := a.request(e, payload)
	if err != nil {
		return nil, &failure{class: rewards.Internal, text: err.Error(), cause: err, unserved: true}
	}
	resp, err := g.trip.RoundTrip(req)
	if err != nil {
		return nil, a.broken(err, "")
	}
	defer resp.Body.Close()
	if f := a.refused(resp, cancel); f != nil {
		return nil, f
	}
	return a.answer(resp, e)
}

// attempt is what judging an answer needs to know. It lives as long as send.
type attempt struct {
	g          *Upstream
	call       *Call
	ctx, until context.Context //nolint:containedctx // the caller's, and with the attempt's time; both end with send
	start      time.Time
	at         string // The URL to be shown.
	key        string // That was sent.
}

// smallBody is a body that is copied. Of a reader that net/http knows to be in memory it
// sends header and body with one system call, where both fit into its buffer of 4 KiB, and
// of the caller's, which may have to be let go of in between, with two.
const smallBody = 3 << 10

// mostAnswer bounds the body of an answer to a call that names no bound of its own.
const mostAnswer = 8 << 20

func (a *attempt) request(e *endpoint, p *payload) (*http.Request, error) {
	target, err := e.target(a.call.Path)
	if err != nil {
		return nil, err
	}
	if err := checkHeaders(a.call.Header); err != nil {
		return nil, err
	}
	method := a.call.Method
	if method == "" {
		method = http.MethodPost
	}
	req := (&http.Request{
		Method: method, URL: target, Host: target.Host, Header: a.header(e),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody,
	}).WithContext(a.until)
	if n := len(p.data); n > 0 && n <= smallBody {
		own := bytes.Clone(p.data)
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(own)), nil }
		req.Body, _ = req.GetBody() // has no error
		req.ContentLength = int64(n)
	} else if n > 0 {
		req.Body = p.reader()
		// With GetBody net/http sends again what it never began to send, because the
		// server closed the idle connection.
		req.GetBody = func() (io.ReadCloser, error) { return p.reader(), nil }
		req.ContentLength = int64(len(p.data))
	}
	return req, nil
}

func (a *attempt) header(e *endpoint) http.Header {
	h := http.Header{}
	for name, values := range a.call.Header {
		if !ownHeader(name) {
			h[http.CanonicalHeaderKey(name)] = values
		}
	}
	if h.Get("User-Agent") == "" {
		h.Set("User-Agent", "rewardloop")
	}
	h.Set("Accept-Encoding", "identity")
	switch {
	case a.key != "":
		h.Set("Authorization", "Bearer "+a.key)
	case e.basic != "":
		h.Set("Authorization", e.basic)
	case a.call.Authorized && a.call.Header.Get("Authorization") != "":
		h.Set("Authorization", a.call.Header.Get("Authorization"))
	}
	return h
}

// broken is the failure of an attempt without a whole answer.
func (a *attempt) broken(err error, where string) *failure {
	took := time.Since(a.start)
	switch {
	case a.ctx.Err() != nil:
		f := ended(a.ctx, true, fmt.Sprintf("%s worked on it for %s", a.at, brief(took)))
		if f.class == rewards.Timeout && took >= min(a.g.cfg.Timeout/2, illAfter) {
			f.health = ill
		}
		return f
	case a.until.Err() != nil:
		return &failure{
			class: rewards.Timeout, blame: rewards.BlameDependency, cause: a.until.Err(), retry: true, health: ill,
			text: fmt.Sprintf("%s did not answer within %s%s", a.at, brief(a.g.cfg.Timeout), where),
		}
	}
	f := &failure{
		class: rewards.Unavailable, blame: rewards.BlameDependency, cause: err, retry: true, health: ill,
		text: fmt.Sprintf("%s: %v%s", a.at, err, where),
	}
	var address *addressError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &address):
		f.stays()
		f.text = fmt.Sprintf("%s: %v", a.at, address)
	case errors.As(err, &record):
		f.stays()
		f.text = a.at + " does not use TLS: begin its URL with http://"
	case untrusted(err):
		f.stays()
		f.text += ": check the host in the URL, and name the issuer's certificate in the CA file"
	}
	f.unserved = where == "" && unsent(err)
	return f
}

// stays says that every call will fail so until somebody changes the configuration or the
// dependency.
func (f *failure) stays() {
	f.class, f.blame, f.permanent, f.retry = rewards.Internal, rewards.BlameDependency, true, false
}

// untrusted reports whether err is about certificates, which another attempt would
// find unchanged.
func untrusted(err error) bool {
	var cert *tls.CertificateVerificationError
	return errors.As(err, &cert)
}

// refused is the failure of an answer that is one by its status; nil: its body is to be
// read. stop ends the reading of a body that does not come.
func (a *attempt) refused(resp *http.Response, stop func()) *failure {
	status := resp.StatusCode
	if status >= 200 && status <= 299 {
		return nil
	}
	rekey, errKey := false, error(nil)
	if status == http.StatusUnauthorized {
		rekey, errKey = a.g.secrets.renew(a.key)
	}
	if !rekey && status >= 400 && a.call.Statuses != nil && a.call.Statuses(status) {
		return nil
	}
	f := judge(status)
	f.rekey, f.cause = rekey, errKey
	f.text = fmt.Sprintf("%s answered %d %s", a.at, status, http.StatusText(status))
	if status >= 300 && status <= 399 {
		f.text += fmt.Sprintf(" to %s; redirects are not followed: write the final URL into the configuration", place(resp))
		return f
	}
	f.after = parseRetryAfter(resp.Header, time.Now(), a.g.cfg.RetryAfterMax)
	if !compressed(resp) {
		timer := time.AfterFunc(quoteTime, stop)
		body, _ := io.ReadAll(io.LimitReader(resp.Body, quoteBytes)) // The status is what counts.
		timer.Stop()
		f.text += a.excerpt(body)
	}
	f.text += a.advice(status, errKey)
	return f
}

// judge says what a status that is no answer means: which class, whose failure it is,
// whether another attempt may help, and whether the endpoint is ill.
func judge(status int) *failure {
	f := &failure{status: status, class: rewards.Unavailable, blame: rewards.BlameDependency, health: alive}
	// A 500, 502 or 504 may come after all the work was done.
	f.unserved = status < 500 || status == http.StatusServiceUnavailable
	switch {
	case status == http.StatusBadRequest, status == http.StatusRequestEntityTooLarge, status == http.StatusUnprocessableEntity:
		f.class, f.blame = rewards.BadInput, rewards.BlameSample
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests:
		f.retry = true
	case status == http.StatusNotImplemented, status == http.StatusHTTPVersionNotSupported, status < 400:
		f.stays()
		f.health = ill
	case status >= 500:
		f.retry, f.health = true, ill
	default: // the key, the path, the method, the model
		f.stays()
	}
	return f
}

// advice is what to do about a status.
func (a *attempt) advice(status int, errKey error) string {
	switch {
	case errKey != nil:
		return "; reading the key again: " + errKey.Error()
	case status == http.StatusUnauthorized && a.g.cfg.KeyFile == "":
		return "; set a key file for the endpoint"
	case status == http.StatusUnauthorized:
		return "; check the key in " + a.g.cfg.KeyFile
	case status == http.StatusForbidden:
		return "; the key, or this machine, has no permission"
	case status == http.StatusNotFound:
		return "; check the path of the URL and the name of the model"
	case status == http.StatusMethodNotAllowed:
		return "; check the path of the URL"
	}
	return ""
}

// answer reads the body and asks Check.
func (a *attempt) answer(resp *http.Response, e *endpoint) (*Answer, *failure) {
	status := resp.StatusCode
	if compressed(resp) {
		f := &failure{status: status, health: alive}
		f.stays()
		f.text = fmt.Sprintf("%s answered with Content-Encoding %q, want no encoding", a.at, resp.Header.Get("Content-Encoding"))
		return nil, f
	}
	most := cmp.Or(max(a.call.MaxBytes, 0), mostAnswer)
	body, err := readBody(resp.Body, resp.ContentLength, most)
	switch {
	case errors.Is(err, errTooLong):
		return nil, &failure{
			class: rewards.Internal, blame: rewards.BlameDependency, status: status, health: alive, cause: err,
			text: fmt.Sprintf("%s answered with more than %d bytes, the bound of this call", a.at, most),
		}
	case err != nil:
		f := a.broken(err, fmt.Sprintf(" (its answer broke off after %d bytes)", len(body)))
		f.status = status
		return nil, f
	}
	answer := &Answer{Status: status, Header: resp.Header, Body: body, Endpoint: e.name}
	if status > 299 || a.call.Check == nil {
		return answer, nil
	}
	if err := a.call.Check(answer); err != nil {
		return nil, a.wrong(answer, err)
	}
	return answer, nil
}

// wrong is the failure of an answer that Check does not accept. Another attempt follows
// where Check blames the dependency, as for no answer at all.
func (a *attempt) wrong(answer *Answer, err error) *failure {
	f := &failure{class: rewards.ClassOf(err), status: answer.Status, cause: err, health: alive, text: fmt.Sprintf("%s: %v", a.at, err)}
	f.blame, f.permanent = rewards.BlameOf(err)
	if f.blame == rewards.BlameDependency && !f.permanent {
		f.retry, f.health = true, ill
	}
	return f
}

func compressed(resp *http.Response) bool {
	enc := strings.TrimSpace(resp.Header.Get("Content-Encoding"))
	return enc != "" && !strings.EqualFold(enc, "identity")
}

// place is the host that a redirect points to.
func place(resp *http.Response) string {
	location := resp.Header.Get("Location")
	u, err := url.Parse(location)
	switch {
	case location == "":
		return "no location"
	case err != nil:
		return "a location that is not a URL"
	case u.Host == "":
		return "another path of the same host"
	}
	return u.Host
}

func pathOnly(path string) string {
	path, _, _ = strings.Cut(path, "?")
	return path
}
