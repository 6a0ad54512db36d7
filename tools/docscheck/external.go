package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// address checks how a link to another host is written.
func (c *checker) address(name string, l link) {
	u, err := url.Parse(l.target)
	switch {
	case err != nil:
		c.wrong(name, l.line, "the address %q is not well written: %v", l.target, err)
	case u.Scheme == "mailto":
	case u.Hostname() == "":
		c.wrong(name, l.line, "the address %q names no host", l.target)
	case here(u):
	case u.Scheme != "https":
		c.wrong(name, l.line, "the address %q is not https: use https, or put it into backticks if nobody is to follow it", l.target)
	case !strings.Contains(u.Hostname(), "."):
		c.wrong(name, l.line, "the address %q has a host without a dot: put it into backticks if it is an example", l.target)
	}
}

// here says whether an address is that of the reader's own machine.
func here(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// How other hosts are asked: one request takes at most followTimeout, followers are
// asked at the same time, and a page is read no further than its head.
const (
	followTimeout = 10 * time.Second
	followers     = 8
)

// answer is what came of asking for an address.
type answer struct {
	status int
	err    error
}

// follow asks for every address of every page once. A host that refuses programs (401,
// 403, 429) is a note; what is not there is a finding, and so is silence. Where nobody
// at all answers there is no network, which says nothing of the documents.
func (c *checker) follow(ctx context.Context, out io.Writer) error {
	where := map[string][]finding{}
	for _, name := range c.tree.paths() {
		for _, l := range c.tree.pages[name].links {
			u, err := url.Parse(l.target)
			if err == nil && u.Scheme == "https" && !here(u) {
				u.Fragment = ""
				where[u.String()] = append(where[u.String()], finding{name, l.line, ""})
			}
		}
	}
	answers, silent := askAll(ctx, slices.Sorted(maps.Keys(where))), 0
	for target, a := range answers {
		if a.err != nil {
			silent++
		}
		for _, at := range where[target] {
			switch {
			case a.err != nil:
				c.wrong(at.page, at.line, "%s does not answer: %v", target, a.err)
			case a.status == http.StatusUnauthorized || a.status == http.StatusForbidden || a.status == http.StatusTooManyRequests:
				fmt.Fprintf(out, "note: %s:%d: %s answers programs with %d: look at it yourself\n", at.page, at.line, target, a.status)
			case a.status >= http.StatusBadRequest:
				c.wrong(at.page, at.line, "%s answers %d: find where it has gone, or remove the link", target, a.status)
			}
		}
	}
	if silent > 0 && silent == len(answers) {
		return fmt.Errorf("none of %d addresses answers: is there a network? Without -online none is asked", silent)
	}
	fmt.Fprintf(out, "docs: %d addresses followed\n", len(answers))
	return nil
}

// askAll asks for all addresses, several at a time.
func askAll(ctx context.Context, targets []string) map[string]answer {
	var (
		mu      sync.Mutex // Guards answers.
		answers = map[string]answer{}
		wg      sync.WaitGroup
		slots   = make(chan struct{}, followers)
		agent   = &http.Client{Timeout: followTimeout}
	)
	for _, target := range targets {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			status, err := ask(ctx, agent, target)
			mu.Lock()
			defer mu.Unlock()
			answers[target] = answer{status, err}
		})
	}
	wg.Wait()
	return answers
}

// ask sends HEAD, and GET where that is refused.
func ask(ctx context.Context, agent *http.Client, target string) (int, error) {
	status := 0
	for _, method := range []string{http.MethodHead, http.MethodGet} {
		req, err := http.NewRequestWithContext(ctx, method, target, http.NoBody)
		if err != nil {
			return 0, err
		}
		req.Header.Set("User-Agent", "docscheck")
		res, err := agent.Do(req)
		if err != nil {
			if method == http.MethodHead {
				continue
			}
			return 0, err
		}
		_ = res.Body.Close()
		if status = res.StatusCode; status < http.StatusBadRequest {
			break
		}
	}
	return status, nil
}
