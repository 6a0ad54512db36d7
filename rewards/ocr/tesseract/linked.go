//go:build cgo && tesseract

package tesseract

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/otiai10/gosseract/v2"

	"github.com/rewardloop/rewardloop/internal/fair"
	"github.com/rewardloop/rewardloop/internal/subprocess"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr"
)

// runner is what subprocess.Pool and subprocess.Inline have in common.
type runner interface {
	Start(ctx context.Context) error
	Take(ctx context.Context, t fair.Tenant) (subprocess.Lease, error)
	Stop(ctx context.Context) error
	Stats() subprocess.Stats
}

// linked is the backend that links libtesseract. Its runner is made anew by every
// start, because a pool that failed to start is spent; Reader.warm guards it.
type linked struct {
	cfg   Config
	run   chan runner // capacity 1: the current runner
	child subprocess.Config
}

func newBackend(cfg Config) (backend, error) {
	px, err := ocr.Canary()
	if err != nil {
		return nil, err
	}
	init, err := json.Marshal(cfg)
	if err != nil {
		return nil, fmt.Errorf("tesseract: %w", err)
	}
	s := &linked{cfg: cfg, run: make(chan runner, 1)}
	s.child = subprocess.Config{
		Kind:           kindName,
		Env:            environment(),
		Slots:          cfg.Slots,
		Init:           init,
		MaxPixels:      3 * cfg.MaxPixels,
		RequestTimeout: cfg.Timeout,
		Recycle:        cfg.Recycle,
		Canary: &subprocess.Canary{
			Request: request(px.RGB, px.Width, px.Height),
			Check: func(body []byte) error {
				lines, err := parse(body)
				if err != nil {
					return err
				}
				return checkCanary(cfg.Language, lines)
			},
		},
	}
	r, err := s.make()
	if err != nil {
		return nil, err
	}
	s.run <- r
	return s, nil
}

func (s *linked) make() (runner, error) {
	if s.cfg.Isolation == Inline {
		return subprocess.NewInline(s.child, Kinds()[0])
	}
	return subprocess.New(s.child)
}

func (s *linked) runner() runner {
	r := <-s.run
	s.run <- r
	return r
}

func (s *linked) start(ctx context.Context) error {
	err := s.runner().Start(ctx)
	if err == nil {
		return nil
	}
	fresh, ferr := s.make()
	if ferr != nil {
		return ferr
	}
	<-s.run
	s.run <- fresh
	return err
}

func (s *linked) take(ctx context.Context) (place, error) {
	l, err := s.runner().Take(ctx, fair.Tenant(rewards.TenantOf(ctx)))
	if err != nil {
		return nil, err
	}
	return leased{l}, nil
}

// leased is a child, or an inline one.
type leased struct{ subprocess.Lease }

func (l leased) release() { l.Release() }

func (l leased) read(ctx context.Context, rgb []byte, width, height int) ([]ocr.Line, error) {
	resp, err := l.Do(ctx, request(rgb, width, height))
	if err != nil {
		return nil, err
	}
	return parse(resp.Body)
}

func (s *linked) stop(ctx context.Context) error { return s.runner().Stop(ctx) }

func (s *linked) stats() subprocess.Stats { return s.runner().Stats() }

func request(rgb []byte, width, height int) subprocess.Request {
	return subprocess.Request{
		Name:   fmt.Sprintf("%dx%d picture", width, height),
		Meta:   fmt.Appendf(nil, `{"width":%d,"height":%d}`, width, height),
		Pixels: [][]byte{rgb},
	}
}

func parse(body []byte) ([]ocr.Line, error) {
	var lines []ocr.Line
	if err := json.Unmarshal(body, &lines); err != nil {
		return nil, fmt.Errorf("the child's answer: %w", err)
	}
	return lines, nil
}

// listing keeps callers of Available apart: gosseract 2.4.1 asks one static TessBaseAPI
// for the folder of the languages, and while another caller initialises it anew that is
// no folder at all.
var listing sync.Mutex //nolint:gochecknoglobals // as the object it guards

// Available returns a description of the Tesseract that this build uses, or an error that describes
// what is missing.
func Available() (detail string, err error) {
	listing.Lock()
	langs, err := gosseract.GetAvailableLanguages()
	listing.Unlock()
	if err != nil {
		return "", fmt.Errorf("tesseract %s is linked in, but its languages cannot be listed: %w", gosseract.Version(), err)
	}
	if len(langs) == 0 {
		return "", fmt.Errorf("tesseract %s is linked in, but has no languages: install tesseract-ocr-eng or set TESSDATA_PREFIX", gosseract.Version())
	}
	return fmt.Sprintf("tesseract %s, linked in, languages %v", gosseract.Version(), langs), nil
}
