package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/rewards/ocr/ppocr"
	"github.com/rewardloop/rewardloop/rewards/ocr/ppocr/fold"
)

// session is what our reader runs its models on: the pool of production, with ONNX
// Runtime in a child process for each core.
type session struct {
	models  ppocr.Models
	library ort.Library
	close   func() error
}

// open starts a session for the files of a detector and a recogniser. They are folded
// into folder first, unless it is "".
func open(det, rec, folder string) (*session, error) {
	library, err := ort.Find("")
	if err != nil {
		return nil, err
	}
	opener, err := ort.NewOpener(ort.Config{Library: library.Path})
	if err != nil {
		return nil, err
	}
	p, err := pool.New(pool.Config{}, opener)
	if err != nil {
		return nil, err
	}
	e := &session{library: library, close: func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return p.Close(ctx)
	}}
	model := func(name, path string) (*pool.Model, error) {
		m := infer.Model{Name: name, Path: path, Device: "cpu"}
		if folder != "" {
			var err error
			if m.Path, m.SHA256, err = fold.File(path, "", folder); err != nil {
				return nil, err
			}
		}
		return p.Model(m, pool.ModelOptions{})
	}
	d, err := model("detector", det)
	if err != nil {
		return nil, errors.Join(err, e.close())
	}
	r, err := model("recogniser", rec)
	if err != nil {
		return nil, errors.Join(err, e.close())
	}
	e.models = ppocr.Models{Det: d, Rec: r}
	return e, nil
}

// describe names what runs.
func (e *session) describe() string {
	return fmt.Sprintf("ONNX Runtime %s in child processes", e.library.Version)
}
