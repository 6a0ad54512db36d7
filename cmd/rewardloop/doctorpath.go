package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/fabric"
	"github.com/rewardloop/rewardloop/internal/node"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/jpeg"
	"github.com/rewardloop/rewardloop/rewards/ocr"
	"github.com/rewardloop/rewardloop/rewards/ocr/tesseract"
)

// readsText reports whether a reward of the configuration needs Tesseract.
func (x *exam) readsText() bool {
	for _, p := range x.cfg.Profiles {
		if slices.ContainsFunc(p.Terms, func(t config.TermConfig) bool { return t.Scorer == "ocr" }) {
			return true
		}
	}
	return false
}

func (x *exam) tesseract(context.Context) check {
	c := check{Name: "tesseract", Required: x.readsText(), State: stateOK}
	detail, err := tesseract.Available()
	if err != nil {
		c.State, c.Detail = stateMissing, err.Error()
		c.Advice = "only the reward ocr needs it; on Debian: apt-get install tesseract-ocr"
		return c
	}
	if c.Detail = detail; len(tesseract.Kinds()) == 0 {
		c.State = stateWarn
		c.Advice = "starting a program for every look costs about 0.1 s: make build links Tesseract in where its headers are"
	}
	return c
}

// reading has a child process read a picture: start, shared memory, Tesseract and
// its language data are then all known to work.
func (x *exam) reading(ctx context.Context) check {
	c := check{Name: "reading", Required: x.readsText()}
	fail := func(err error) check {
		c.State, c.Detail = stateMissing, err.Error()
		c.Advice = "Tesseract needs its language data (on Debian tesseract-ocr-eng and the like) and children must be able to start"
		return c
	}
	t := x.cfg.Pool.Tesseract
	r, err := tesseract.New(tesseract.Config{
		Slots: 1, PSM: t.PSM, Language: t.Language, Timeout: t.Timeout, Isolation: tesseract.Isolation(x.cfg.Pool.Isolation),
	})
	if err != nil {
		return fail(err)
	}
	defer r.Close() // its child is killed if it does not end by itself
	begun := time.Now()
	if err := r.Warm(ctx); err != nil {
		return fail(err)
	}
	started := time.Since(begun)
	px, err := written(canary)
	if err != nil {
		return fail(err)
	}
	begun = time.Now()
	lines, err := r.ReadText(ctx, px, 0)
	if err != nil {
		return fail(err)
	}
	took := time.Since(begun)
	got := ocr.Text(lines)
	c.State = stateOK
	c.Detail = fmt.Sprintf("ready after %d ms, read %q in %d ms; %s", started.Milliseconds(), got, took.Milliseconds(), threadLimit(r.Stats().PIDs))
	// Other languages' data need not know Latin letters.
	if strings.Contains(t.Language, "eng") && strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(canary, " ", "") {
		c.State = stateWarn
		c.Advice = fmt.Sprintf("the picture says %q: readings will be poor; look at pool.tesseract.psm and language", canary)
	}
	return c
}

// threadLimit says what the children really have in their environment: libgomp reads
// the variable before their first instruction, and without it each picture is spread
// over all cores at twice the CPU time.
func threadLimit(pids []int) string {
	const name = "OMP_THREAD_LIMIT"
	if len(pids) == 0 {
		return name + "=1 for each program that is started"
	}
	for _, pid := range pids {
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			return name + " in children unknown: " + err.Error()
		}
		if !slices.ContainsFunc(bytes.Split(environ, []byte{0}), func(kv []byte) bool { return string(kv) == name+"=1" }) {
			return fmt.Sprintf("%s is not 1 in child %d", name, pid)
		}
	}
	return name + "=1 in the child"
}

// canary is what the picture says that is read.
const canary = "REWARD 42"

// written draws black text on white.
func written(text string) (*rewards.Pixels, error) {
	parsed, err := opentype.Parse(goregular.TTF)
	if err != nil {
		return nil, fmt.Errorf("the font: %w", err)
	}
	face, err := opentype.NewFace(parsed, &opentype.FaceOptions{Size: 48, DPI: 72, Hinting: font.HintingFull})
	if err != nil {
		return nil, fmt.Errorf("the font: %w", err)
	}
	defer face.Close()
	img := image.NewGray(image.Rect(0, 0, 384, 128))
	draw.Draw(img, img.Bounds(), image.White, image.Point{}, draw.Src)
	d := font.Drawer{Dst: img, Src: image.NewUniform(color.Black), Face: face, Dot: fixed.P(56, 80)}
	d.DrawString(text)
	px := &rewards.Pixels{Width: 384, Height: 128, Count: 1}
	for _, v := range img.Pix {
		px.RGB = append(px.RGB, v, v, v)
	}
	return px, nil
}

// A picture of coloured checks and its size at quality 95 as PIL writes it, one of
// the rows in rewards/jpeg/testdata.
const (
	knownWidth, knownHeight = 64, 47
	knownBytes              = 4086
)

func jpegSize() check {
	c := check{Name: "jpeg", Required: true, State: stateOK}
	rgb := make([]byte, 0, 3*knownWidth*knownHeight)
	for y := range knownHeight {
		for x := range knownWidth {
			for channel := range 3 {
				rgb = append(rgb, byte(255*((x/(3+channel)+y/5)&1)))
			}
		}
	}
	n, err := jpeg.Size(rgb, knownWidth, knownHeight, 95)
	switch {
	case err != nil:
		c.State, c.Detail = stateMissing, err.Error()
	case n != knownBytes:
		c.State, c.Detail = stateMissing, fmt.Sprintf("the known picture has %d bytes, not %d", n, knownBytes)
	default:
		c.Detail = fmt.Sprintf("the known picture has %d bytes, as PIL writes it", n)
	}
	if err != nil || n != knownBytes {
		c.Advice = "this binary computes wrongly on this machine: build it here, and report it"
	}
	return c
}

// engine starts what carries tickets inside of a process.
func engine(ctx context.Context) check {
	c := check{Name: "engine", Required: true, State: stateOK}
	begun := time.Now()
	f, err := fabric.Open(ctx, fabric.Config{})
	if err != nil {
		c.State, c.Detail, c.Advice = stateMissing, err.Error(), "it needs the folder for temporary files, and nothing else"
		return c
	}
	c.Detail = fmt.Sprintf("started in %d ms", time.Since(begun).Milliseconds())
	f.Close()
	return c
}

// selfTest sends one picture from the gateway through the engine to a worker and back.
func selfTest(ctx context.Context) check {
	c := check{Name: "whole path", Required: true, State: stateOK}
	took, err := throughAll(ctx)
	if err != nil {
		c.State, c.Detail, c.Advice = stateMissing, err.Error(), "see the checks above; if they are well, report it"
		return c
	}
	c.Detail = fmt.Sprintf("a known picture came back with its known score in %.1f ms", float64(took.Microseconds())/1000)
	return c
}

func throughAll(ctx context.Context) (time.Duration, error) {
	cfg, err := config.Load("", []string{
		"++reward.num_workers=1", "++reward.custom_reward_function.path=builtin://jpeg_incompressibility",
	}, nil)
	if err != nil {
		return 0, err
	}
	n, err := node.New(node.Options{Config: cfg, Version: release(), NoServer: true})
	if err != nil {
		return 0, err
	}
	if err := n.Start(ctx); err != nil {
		return 0, err
	}
	defer n.Stop()
	begun := time.Now()
	err = n.SelfTest(ctx)
	return time.Since(begun), err
}

// rewards readies every reward of the configuration, as serve does before it listens.
func (x *exam) rewards(ctx context.Context) []check {
	failed := func(name string, err error) check {
		return check{
			Name: name, Required: true, State: stateMissing, Detail: err.Error(),
			Advice: "serve would not start; rewardloop scorers lists the rewards and their options",
		}
	}
	s, err := node.NewScorers(x.cfg)
	if err != nil {
		return []check{failed("rewards", err)}
	}
	defer s.Close() // children are killed if they do not end by themselves
	managers, err := config.BuildManagers(x.cfg, s.Registry)
	if err != nil {
		return []check{failed("rewards", err)}
	}
	var out []check
	for _, name := range slices.Sorted(maps.Keys(managers)) {
		m := managers[name]
		begun := time.Now()
		err := errors.Join(m.Warm(ctx), m.Close())
		if err != nil {
			out = append(out, failed("reward "+name, err))
			continue
		}
		ms := time.Since(begun).Milliseconds()
		out = append(out, check{
			Name: "reward " + name, Required: true, State: stateOK, MS: float64(ms),
			Detail: fmt.Sprintf("%s: ready after %d ms", strings.Join(m.Terms(), ", "), ms),
		})
	}
	return out
}
