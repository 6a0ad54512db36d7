package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rewardloop/rewardloop/config/keys"
	"github.com/rewardloop/rewardloop/internal/bundle"
	"github.com/rewardloop/rewardloop/internal/pyenv"
	"github.com/rewardloop/rewardloop/models"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr"
)

const bundleText = `
Packs everything that a configuration needs from a network into a folder, for
machines without a network: the model files with their SHA-256, the ONNX Runtime
library if it is installed on this machine, and the lock and the wheels of each
Python environment, for this platform. Missing files are downloaded first, as by
models pull and env make. Without a configuration, each NAME is a model, as in
models pull.

Copy the folder, the configuration and the files that the configuration names,
such as reward functions, to the other machine. There, models unbundle installs
the content of the bundle, and serve can start.

models bundle prints one line for each item that the bundle does not contain: a
Python entry without an environment uses the Python of its machine, and a
checkpoint that only Python downloads has to be copied with Hugging Face's
cache.`

const (
	bundleName = "models" // begins the names of the parts
	// bundlePart is the default of --part-size: below the 4 GiB of FAT, and what object stores take
	// in one piece.
	bundlePart = "2GiB"
	// maxBundle bounds what is packed and unpacked, in bytes.
	maxBundle = 4 << 40
	// contentsName is the first file of a bundle, and maxContents the most bytes of it.
	contentsName, maxContents = "contents.json", 8 << 20
	noticesName               = "NOTICES.txt"
)

// bundleContents says what the files of a bundle are for.
type bundleContents struct {
	Version int    `json:"version"` // 1
	By      string `json:"by"`      // the program that packed it
	// System is the operating system and architecture that the library is for.
	System       string          `json:"system"`
	Models       []bundledModel  `json:"models"`
	Library      *bundledLibrary `json:"onnxruntime,omitempty"`
	Environments []bundledEnv    `json:"environments"`
	Agreed       []string        `json:"agreed,omitempty"`  // licences that the configuration agrees to
	Without      []string        `json:"without,omitempty"` // what is needed and not in it
}

type bundledModel struct {
	Name     string         `json:"name"`
	Licence  models.Licence `json:"licence"`
	Homepage string         `json:"homepage,omitempty"`
	Files    []models.Given `json:"files"`
}

type bundledLibrary struct {
	Version string   `json:"version"`
	Files   []string `json:"files"` // the library comes last
}

type bundledEnv struct {
	Entries []string `json:"entries"` // of the configuration
	pyenv.Packed
}

// The places of files in a bundle.
func inModels(name string) string  { return "models/" + name }
func inLibrary(name string) string { return "onnxruntime/" + name }

// inWheels is that of wheel i of an environment. Environments share equal ones.
func (e bundledEnv) inWheels(i int) string {
	return path.Join("wheels", e.Packages[i].SHA256[:16], e.Wheels[i])
}

func (m bundledModel) size() (n int64) {
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// bundleCall is one call of models bundle.
type bundleCall struct {
	*modelsCall
	s        *settings
	out      string
	partSize int64
	yes      bool
	envs     pyenv.Store
	library  string // that the configuration names
	contents bundleContents
	wanted   []wantedEnv
	files    []bundle.File
}

func modelsBundleCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "bundle [-c cfg.yaml | NAME...] --out FOLDER [flags]", DisableFlagsInUseLine: true,
		Short: "pack models and packages for a machine without a network",
		Long:  bundleText, Example: "rewardloop models bundle -c cfg.yaml --out bundle --dry-run\nrewardloop models bundle ppocr-v4-mobile --out bundle --dry-run",
	}
	s := configFlags(e, cmd)
	c := &bundleCall{modelsCall: newModelsCall(e, cmd), s: s}
	var names []string
	cmd.Args = func(_ *cobra.Command, args []string) error {
		for _, a := range args {
			if isModelName(a) {
				names = append(names, a)
			} else if err := s.take([]string{a}); err != nil {
				return err
			}
		}
		return nil
	}
	cmd.Flags().StringVar(&c.out, "out", "", "output `folder`; must be empty or not exist")
	_ = cmd.MarkFlagDirname("out") // the flag is there
	size := cmd.Flags().String("part-size", bundlePart, "maximum `size` of each file of the bundle, such as 650MB")
	cmd.Flags().BoolVar(&c.options.AcceptLicence, "accept-licence", false, "agree to licences that restrict the use, e.g. to non-commercial use")
	cmd.Flags().BoolVar(&c.yes, "yes", false, "download the packages of environments without confirmation")
	cmd.Flags().BoolVar(&c.dryRun, "dry-run", false, "print what would be packed, with sizes; pack nothing")
	timeout := cmd.Flags().Duration("timeout", makeTimeout, "maximum `time`; finished downloads are kept")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		switch {
		case !s.given() && len(names) == 0:
			return errors.New("nothing named to bundle: give -c cfg.yaml for what a configuration needs, or names of models (`rewardloop models list`)")
		case c.out == "":
			return errors.New("--out is missing: name the folder for the bundle, such as --out bundle")
		case *timeout <= 0:
			return errors.New("--timeout must be above 0")
		}
		if c.partSize, err = keys.ParseSize(*size); err != nil || c.partSize < 1<<20 || c.partSize > bundle.MaxPart {
			return fmt.Errorf("--part-size %q: want 1MiB to %s", *size, keys.FormatSize(bundle.MaxPart))
		}
		return c.do(cmd.Context(), names, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeoutCause(ctx, *timeout, fmt.Errorf("not done after %v (--timeout); downloads are kept", *timeout))
			defer cancel()
			return c.bundle(ctx)
		})
	}
	return cmd
}

// isModelName tells a model from a configuration and from an override, which has a = before any address.
func isModelName(arg string) bool {
	scheme, equals := strings.Index(arg, "://"), strings.Index(arg, "=")
	switch {
	case equals >= 0 && (scheme < 0 || equals < scheme), strings.HasPrefix(arg, "~"):
		return false
	}
	return arg != "-" && !strings.HasSuffix(arg, ".yaml") && !strings.HasSuffix(arg, ".yml")
}

// bundle packs everything, or says what it would pack.
func (c *bundleCall) bundle(ctx context.Context) (err error) {
	if !c.dryRun {
		if left, err := os.ReadDir(c.out); err == nil && len(left) > 0 {
			return wrong(fmt.Errorf("--out %s is not empty: name another folder, or remove it", c.out))
		}
	}
	c.contents = bundleContents{Version: 1, By: "rewardloop " + release(), System: runtime.GOOS + "/" + runtime.GOARCH, Models: []bundledModel{}, Environments: []bundledEnv{}}
	if c.envs, err = c.environments(); err != nil {
		return err
	}
	fromConfig, err := c.configured()
	if err != nil {
		return wrong(err)
	}
	var faults []error
	for i, name := range slices.Concat(fromConfig, c.names) {
		if err := c.model(ctx, name, i >= len(fromConfig)); err != nil {
			faults = append(faults, err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if err := errors.Join(faults...); err != nil {
		return unreachable(err)
	}
	if err := c.runtime(); err != nil {
		return err
	}
	if c.dryRun {
		return c.foresee()
	}
	scratch, release, err := c.envs.Scratch()
	if err != nil {
		return err
	}
	defer release()
	if err := c.packEnvironments(ctx, scratch); err != nil {
		return unreachable(err)
	}
	if len(c.files) == 0 && len(c.contents.Environments) == 0 {
		c.sayWithout()
		return errors.New("nothing to pack: this configuration needs no model files and has no environments")
	}
	return c.pack(ctx, scratch)
}

// configured reads the configuration: the models that it wants.
func (c *bundleCall) configured() ([]string, error) {
	if !c.s.given() {
		return nil, nil
	}
	cfg, err := c.s.read()
	if err != nil {
		return nil, err
	}
	scorers, err := node.NewScorers(cfg, nil)
	if err != nil {
		return nil, err
	}
	defer scorers.Close() // nothing was started
	needs := cfg.Carry(scorers.Registry)
	for _, o := range askedReaders(cfg) {
		name := o.Model
		switch {
		case o.Reader == ocr.ReaderTesseract:
			needs.Without = append(needs.Without, "a reader of text is Tesseract, which that machine has to have")
			continue
		case o.Reader == ocr.ReaderVLM && name == ocr.DefaultModel:
			name = ocr.DefaultVLM
		}
		if !slices.Contains(needs.Models, name) {
			needs.Models = append(needs.Models, name)
		}
	}
	c.contents.Agreed, c.contents.Without = needs.Agreed, needs.Without
	c.wanted, c.library = wantedOf(cfg), cfg.Pool.ONNX.Library
	c.envs.Python = cmp.Or(cfg.Pool.Python.Interpreter, c.envs.Python)
	if dir := cfg.Pool.ModelsDir; dir != "" && c.dir == "" {
		c.store.Dir = dir
		c.without("pool.models_dir is %s: models unbundle --dir %s puts the models there", dir, dir)
	}
	if c.library != "" {
		c.without("pool.onnx.library is %s: serve looks for ONNX Runtime only there", c.library)
	}
	return needs.Models, nil
}

func (c *bundleCall) without(format string, args ...any) {
	c.contents.Without = append(c.contents.Without, fmt.Sprintf(format, args...))
}

// model makes a model be here, and notes its files. Asked says that the command line names it.
func (c *bundleCall) model(ctx context.Context, name string, asked bool) error {
	if slices.ContainsFunc(c.contents.Models, func(m bundledModel) bool { return m.Name == name }) {
		return nil
	}
	m, err := models.Find(name)
	if err != nil && asked {
		m, err = c.other(ctx, name)
	}
	switch {
	case err == nil && m.Export == "":
		return c.pulled(ctx, m)
	case err == nil:
		if _, err := c.store.Folder(m); err != nil {
			return err
		}
		return c.tree(ctx, bundledModel{Name: m.Name, Licence: m.Licence, Homepage: m.Homepage})
	}
	dir, notThere := c.store.Resolve(name)
	if notThere != nil {
		if asked {
			return err
		}
		return notThere
	}
	store, absErr := filepath.Abs(c.store.Dir)
	if absErr != nil {
		return absErr
	}
	inStore, relErr := filepath.Rel(store, dir)
	switch info, statErr := os.Stat(name); {
	case relErr == nil && filepath.IsLocal(inStore):
		return c.exported(ctx, filepath.ToSlash(inStore))
	case statErr == nil && info.IsDir():
		c.without("the folder of model %s: copy it to the same path, %s", name, dir)
	default:
		c.without("the model %s is in Hugging Face's cache: copy that cache too (HF_HUB_CACHE, HF_HOME)", name)
	}
	return nil
}

// other is a model that was pulled before, or that a person names for a pull.
func (c *bundleCall) other(ctx context.Context, name string) (models.Model, error) {
	others, err := c.store.Others()
	if err != nil {
		return models.Model{}, err
	}
	if at := slices.IndexFunc(others, func(m models.Model) bool { return m.Name == name }); at >= 0 {
		return others[at], nil
	}
	return c.find(ctx, name)
}

// pulled has a model pulled where it is not here, and notes its files.
func (c *bundleCall) pulled(ctx context.Context, m models.Model) error {
	if !c.dryRun {
		if err := c.pullOne(ctx, m); err != nil {
			return err
		}
	}
	found, err := c.store.Verify(ctx, m)
	if err != nil && (!c.dryRun || len(found) < len(m.Files)) {
		return err
	}
	b := bundledModel{Name: m.Name, Licence: m.Licence, Homepage: m.Homepage}
	for _, st := range found {
		g := models.Given{Name: st.File.Name, Size: cmp.Or(st.Size, st.File.Size), SHA256: st.SHA256, Source: st.File.Source}
		if st.Absent || st.File.Optional && !st.Present {
			continue
		}
		b.Files = append(b.Files, g)
		c.file(inModels(g.Name), st.Path)
	}
	c.contents.Models = append(c.contents.Models, b)
	return nil
}

// exported packs a folder of the store that is not of the catalogue.
func (c *bundleCall) exported(ctx context.Context, name string) error {
	all, err := c.store.Exported()
	if err != nil {
		return err
	}
	b := bundledModel{Name: name, Licence: models.Licence{SPDX: "LicenseRef-unknown"}}
	if at := slices.IndexFunc(all, func(m models.Model) bool { return m.Name == name }); at >= 0 {
		b.Licence, b.Homepage = all[at].Licence, all[at].Homepage
	}
	return c.tree(ctx, b)
}

// tree notes the files of a folder of the store that no pull has brought.
func (c *bundleCall) tree(ctx context.Context, b bundledModel) (err error) {
	if b.Files, err = c.store.Tree(ctx, b.Name); err != nil {
		return fmt.Errorf("model %s: %w", b.Name, err)
	}
	for _, g := range b.Files {
		c.file(inModels(g.Name), filepath.Join(c.store.Dir, filepath.FromSlash(g.Name)))
	}
	c.contents.Models = append(c.contents.Models, b)
	return nil
}

// file notes a file to pack, once: models may share one.
func (c *bundleCall) file(name, at string) {
	if slices.ContainsFunc(c.files, func(f bundle.File) bool { return f.Name == name }) {
		return
	}
	if target, err := filepath.EvalSymlinks(at); err == nil { // into Hugging Face's cache
		at = target
	}
	c.files = append(c.files, bundle.File{Name: name, Path: at})
}

// runtime notes the library that models run with.
func (c *bundleCall) runtime() error {
	if len(c.contents.Models) == 0 {
		return nil
	}
	library, err := ort.Find(c.library)
	if err != nil {
		c.without("ONNX Runtime is not installed on this machine, so the bundle has no copy for the models: %v", err)
		return nil
	}
	c.contents.Library = &bundledLibrary{Version: library.Version}
	for _, at := range library.Files() {
		name := filepath.Base(at)
		c.contents.Library.Files = append(c.contents.Library.Files, name)
		c.file(inLibrary(name), at)
	}
	if library.CUDA {
		c.without("the CUDA provider of ONNX Runtime is in the bundle; CUDA's own libraries must be installed on the target machine")
	}
	return nil
}

// packEnvironments downloads the wheels of every environment.
func (c *bundleCall) packEnvironments(ctx context.Context, scratch string) error {
	var faults []error
	asks := &envMake{env: c.env, store: c.envs, yes: c.yes}
	for i, w := range c.wanted {
		dir := filepath.Join(scratch, strconv.Itoa(i))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		shown := newEnvProgress(c.stderr, isTerminal(c.stderr))
		packed, err := c.envs.Pack(ctx, w.spec, dir, pyenv.Options{
			Progress: shown.event,
			Agree:    func(ctx context.Context, p pyenv.Plan) error { shown.end(); return asks.agree(ctx, &w, p) },
		})
		shown.end()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			faults = append(faults, keyed(w.Keys, err))
			continue
		}
		e := bundledEnv{Entries: w.Keys, Packed: packed}
		for j, name := range e.Wheels {
			c.file(e.inWheels(j), filepath.Join(dir, name))
		}
		c.contents.Environments = append(c.contents.Environments, e)
		fmt.Fprintf(c.stderr, "%s: %s for Python %s on %s, for %s\n", packed.Name, rewards.Count(len(packed.Wheels), "wheel"), packed.Python, packed.Platform, strings.Join(w.Keys, ", "))
	}
	return errors.Join(faults...)
}

// pack writes the bundle.
func (c *bundleCall) pack(ctx context.Context, scratch string) error {
	text, err := json.MarshalIndent(c.contents, "", " ")
	if err != nil {
		return err
	}
	at := filepath.Join(scratch, contentsName)
	if err := os.WriteFile(at, append(text, '\n'), 0o600); err != nil {
		return err
	}
	total, err := sizeOfFiles(c.files)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		return err
	}
	if free, err := models.FreeSpace(c.out); err == nil && free < total {
		return fmt.Errorf("not enough room on the disk: the bundle has up to %s and %s has %s: name another folder with --out", megabytes(total), c.out, megabytes(free))
	}
	shown := newPullProgress(c.stderr, isTerminal(c.stderr), models.Model{})
	shown.doing = "packing"
	m, err := bundle.Pack(ctx, c.out, bundle.Options{
		Name: bundleName, PartSize: c.partSize, Limit: maxBundle, Fast: true,
		Progress: func(done int64) {
			shown.event(models.Event{File: c.out, Stage: models.Downloading, Done: done, Total: total})
		},
	}, append([]bundle.File{{Name: contentsName, Path: at}}, c.files...))
	shown.end()
	if err == nil {
		err = os.WriteFile(filepath.Join(c.out, noticesName), []byte(c.notices()), 0o644) //nolint:gosec // what travels is for everybody
	}
	if err != nil {
		return err
	}
	var packed int64
	for _, p := range m.Parts {
		packed += p.Size
	}
	fmt.Fprintf(c.stdout, "%s: %s of %s in %s, %s unpacked\n", c.out, rewards.Count(len(m.Files)-1, "file"), megabytes(packed), rewards.Count(len(m.Parts), "part"), megabytes(total))
	c.sayContents()
	c.sayWithout()
	fmt.Fprintf(c.stdout, "copy it, and there: rewardloop models unbundle %s\n", filepath.Base(filepath.Clean(c.out)))
	return nil
}

func sizeOfFiles(files []bundle.File) (total int64, err error) {
	for _, f := range files {
		info, err := os.Stat(f.Path)
		if err != nil {
			return 0, err
		}
		total += info.Size()
	}
	return total, nil
}

// sayContents prints what is in the bundle, with licences.
func (c *bundleCall) sayContents() {
	for _, m := range c.contents.Models {
		fmt.Fprintf(c.stdout, "model %s, %s\n", m.Name, megabytes(m.size()))
		printLicence(c.stdout, models.Model{Licence: m.Licence, Homepage: m.Homepage})
	}
	if l := c.contents.Library; l != nil {
		fmt.Fprintf(c.stdout, "ONNX Runtime %s for %s\n", l.Version, c.contents.System)
	}
	for _, e := range c.contents.Environments {
		fmt.Fprintf(c.stdout, "environment %s, %s, for %s\n", e.Name, rewards.Count(len(e.Packages), "package"), strings.Join(e.Entries, ", "))
	}
}

func (c *bundleCall) sayWithout() {
	for _, text := range c.contents.Without {
		fmt.Fprintf(c.stdout, "not in the bundle: %s\n", text)
	}
}

// notices are the licences of what is in the bundle, for people.
func (c *bundleCall) notices() string {
	var b strings.Builder
	fmt.Fprintf(&b, "What this bundle holds, and under which licences. Packed by %s.\n", c.contents.By)
	for _, m := range c.contents.Models {
		fmt.Fprintf(&b, "\nmodel %s\n", m.Name)
		printLicence(&b, models.Model{Licence: m.Licence, Homepage: m.Homepage})
	}
	if l := c.contents.Library; l != nil {
		fmt.Fprintf(&b, "\nONNX Runtime %s\n  licence MIT, Microsoft, https://github.com/microsoft/onnxruntime/blob/main/LICENSE; ThirdPartyNotices.txt lies beside the library\n", l.Version)
	}
	for _, e := range c.contents.Environments {
		fmt.Fprintf(&b, "\nenvironment %s, with licences as the packages state them\n", e.Name)
		for _, p := range e.Packages {
			fmt.Fprintf(&b, "  %s %s: %s\n", p.Name, p.Version, cmp.Or(p.Licence, "unknown"))
		}
	}
	for _, text := range c.contents.Agreed {
		fmt.Fprintf(&b, "\nagreed to in the configuration: %s\n", text)
	}
	return b.String()
}

// foresee says what would be packed. It reads what is here and asks nobody.
func (c *bundleCall) foresee() error {
	var total int64
	more := ""
	for _, m := range c.contents.Models {
		total += m.size()
		what := "here"
		for _, f := range m.Files {
			if f.SHA256 == "" {
				what = "to be downloaded first"
			}
			if f.Size == 0 {
				more = "more than "
			}
		}
		fmt.Fprintf(c.stdout, "model %s: %s, %s\n", m.Name, megabytes(m.size()), what)
		printLicence(c.stdout, models.Model{Licence: m.Licence, Homepage: m.Homepage})
	}
	if l := c.contents.Library; l != nil {
		var size int64
		for _, f := range c.files {
			if info, err := os.Stat(f.Path); err == nil && strings.HasPrefix(f.Name, inLibrary("")) {
				size += info.Size()
			}
		}
		total += size
		fmt.Fprintf(c.stdout, "ONNX Runtime %s for %s: %s\n", l.Version, c.contents.System, megabytes(size))
	}
	for _, w := range c.wanted {
		made, err := c.envs.Find(w.spec)
		if err != nil {
			more = "more than "
			fmt.Fprintf(c.stdout, "environment for %s: its requirements are not resolved yet, size unknown\n", strings.Join(w.Keys, ", "))
			continue
		}
		var size int64
		for _, p := range made.Packages {
			size += p.Size
			if p.Size == 0 {
				more = "more than "
			}
		}
		total += size
		fmt.Fprintf(c.stdout, "environment %s, for %s: %s, %s\n", made.Name, strings.Join(w.Keys, ", "), rewards.Count(len(made.Packages), "package"), megabytes(size))
	}
	c.sayWithout()
	if len(c.contents.Models)+len(c.wanted) == 0 {
		fmt.Fprintln(c.stdout, "nothing would be packed: this configuration needs no model files and has no environments")
		return nil
	}
	parts := max(1, (total+c.partSize-1)/c.partSize)
	fmt.Fprintf(c.stdout, "would be packed into %s: %s%s, in %s\n", c.out, more, megabytes(total), rewards.Count(int(parts), "part"))
	return nil
}

// unreachable leads on from an error of the network to the way without one.
func unreachable(err error) error {
	if err == nil || !models.Unreachable(err) && !errors.Is(err, pyenv.ErrNetwork) {
		return err
	}
	return fmt.Errorf("%w\nfor a machine without a network: `rewardloop models bundle` on a machine with a network packs the files", err)
}
