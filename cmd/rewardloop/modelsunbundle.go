package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rewardloop/rewardloop/internal/bundle"
	"github.com/rewardloop/rewardloop/internal/pyenv"
	"github.com/rewardloop/rewardloop/models"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/rewards"
)

const unbundleText = `
Installs the content of a bundle (models bundle) without a network: models into
the models folder (--dir, else as for models pull), the ONNX Runtime library
into onnxruntime next to that folder unless the library is already installed,
and Python environments, installed from their wheels, into the folder of env
make.

All parts of the bundle are checked first. If a part is missing or damaged,
unbundle names the part and changes nothing. Existing correct files are not
changed, so the command can be repeated, also after an interruption. Models work
on every platform. The library and the wheels work only on the platform of the
machine that packed them; on another platform, unbundle names them as refused
and installs the models.`

// unbundleCall is one call of models unbundle.
type unbundleCall struct {
	*modelsCall
	folder   string
	envs     pyenv.Store
	manifest bundle.Manifest
	contents bundleContents

	given    map[string]models.Given // files to put into the store, by their names in the bundle
	library  map[string]bool         // files of the library to put
	wheels   map[string]string       // wheels to unpack, and where
	make     []bundledEnv            // environments to make
	refused  []error                 // what is for another platform
	here     []string                // what is here already, for people
	licences []bundledModel          // of models that come
}

func modelsUnbundleCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "unbundle FOLDER", Short: "install the content of a bundle",
		Long: unbundleText, Example: "rewardloop models unbundle bundle --dir models",
	}
	c := &unbundleCall{modelsCall: newModelsCall(e, cmd)}
	cmd.ValidArgsFunction = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
	cmd.Flags().BoolVar(&c.options.AcceptLicence, "accept-licence", false, "agree to licences that restrict the use, e.g. to non-commercial use")
	timeout := cmd.Flags().Duration("timeout", makeTimeout, "maximum `time`; installed files are kept")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) != 1:
			return errors.New("unbundle what? name the one folder that models bundle has made")
		case *timeout <= 0:
			return errors.New("--timeout must be above 0")
		}
		c.folder = args[0]
		return c.do(cmd.Context(), nil, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeoutCause(ctx, *timeout, fmt.Errorf("not done after %v (--timeout); the files that are in place are kept", *timeout))
			defer cancel()
			return c.unbundle(ctx)
		})
	}
	return cmd
}

func (c *unbundleCall) unbundle(ctx context.Context) (err error) {
	if c.envs, err = c.environments(); err != nil {
		return err
	}
	if err := c.check(ctx); err != nil {
		return err
	}
	shown := newPullProgress(c.stderr, isTerminal(c.stderr), models.Model{})
	shown.doing = "unpacking"
	defer shown.end()
	in, err := c.store.Intake(ctx, models.Options{Progress: shown.event})
	if err != nil {
		return err
	}
	closed := false
	defer func() {
		if !closed {
			in.Close()
		}
	}()
	if err := c.compare(ctx, in); err != nil {
		return err
	}
	scratch, release, err := c.envs.Scratch()
	if err != nil {
		return err
	}
	defer release()
	if err := c.room(scratch); err != nil {
		return err
	}
	if err := c.take(ctx, in, scratch); err != nil {
		return err
	}
	closed = true
	in.Close()
	shown.end()
	if err := c.makeEnvironments(ctx, scratch); err != nil {
		return err
	}
	c.say()
	if len(c.refused) > 0 {
		return failed(errors.Join(c.refused...))
	}
	return nil
}

// check reads every part of the bundle, and then what it says of itself.
func (c *unbundleCall) check(ctx context.Context) (err error) {
	if c.manifest, err = bundle.Read(c.folder, maxBundle); err != nil {
		return err
	}
	var faults []error
	for i, p := range c.manifest.Parts {
		fmt.Fprintf(c.stderr, "%s: reading, %s, part %d of %d\n", c.manifest.PartName(i), megabytes(p.Size), i+1, len(c.manifest.Parts))
		faults = append(faults, c.manifest.CheckPart(ctx, c.folder, i))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("%w\nnothing was changed: copy what is wrong again", err)
	}
	return c.readContents(ctx)
}

var errStop = errors.New("the rest of the bundle is not needed")

// readContents reads the first file of the bundle, and holds the others to it.
func (c *unbundleCall) readContents(ctx context.Context) error {
	err := c.manifest.Each(ctx, c.folder, func(e bundle.Entry, content io.Reader) error {
		if e.Name != contentsName || e.Size > maxContents {
			return fmt.Errorf("%w: %s is not a bundle of models: the file begins with %s, want %s", bundle.ErrManifest, c.folder, e.Name, contentsName)
		}
		text, err := io.ReadAll(content)
		if err != nil {
			return err
		}
		if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != e.SHA256 {
			return fmt.Errorf("%w: %s differs from the file that was packed", bundle.ErrDamaged, e.Name)
		}
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&c.contents); err != nil {
			return fmt.Errorf("%w: %s: %w; a newer rewardloop may have packed it", bundle.ErrManifest, e.Name, err)
		}
		return errStop
	})
	if !errors.Is(err, errStop) {
		return err
	}
	if c.contents.Version != 1 {
		return fmt.Errorf("%w: %s has version %d, this program reads 1", bundle.ErrManifest, contentsName, c.contents.Version)
	}
	return c.hold()
}

var libraryForm = regexp.MustCompile(`^(LICENSE|ThirdPartyNotices\.txt|libonnxruntime[A-Za-z0-9._-]*)$`)

// hold compares the contents with the files of the manifest.
func (c *unbundleCall) hold() error {
	said := map[string]string{} // the sum; empty: the manifest's
	for _, m := range c.contents.Models {
		for _, g := range m.Files {
			if err := g.Validate(); err != nil {
				return fmt.Errorf("model %s: %w", m.Name, err)
			}
			said[inModels(g.Name)] = g.SHA256
		}
	}
	if l := c.contents.Library; l != nil {
		for _, name := range l.Files {
			if !libraryForm.MatchString(name) {
				return fmt.Errorf("%w: %q is not a file of ONNX Runtime", bundle.ErrPath, name)
			}
			said[inLibrary(name)] = ""
		}
	}
	for _, e := range c.contents.Environments {
		if err := e.Validate(); err != nil {
			return err
		}
		for i := range e.Wheels {
			said[e.inWheels(i)] = e.Packages[i].SHA256
		}
	}
	for _, f := range c.manifest.Files[1:] {
		sum, known := said[f.Name]
		if !known || sum != "" && sum != f.SHA256 {
			return fmt.Errorf("%w: %s does not list the file %s, or lists another checksum for it", bundle.ErrManifest, contentsName, f.Name)
		}
		delete(said, f.Name)
	}
	for name := range said {
		return fmt.Errorf("%w: %s names the file %s, which is not in the bundle", bundle.ErrManifest, contentsName, name)
	}
	return nil
}

// compare finds what is here already, what has to come, and what cannot.
func (c *unbundleCall) compare(ctx context.Context, in *models.Intake) error {
	c.given, c.library, c.wheels = map[string]models.Given{}, map[string]bool{}, map[string]string{}
	var faults []error
	for _, m := range c.contents.Models {
		comes := false
		for _, g := range m.Files {
			there, err := in.Has(ctx, g)
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case err != nil:
				faults = append(faults, fmt.Errorf("model %s: %w", m.Name, err))
			case !there:
				c.given[inModels(g.Name)], comes = g, true
			}
		}
		if !comes {
			c.here = append(c.here, "model "+m.Name+" in "+c.store.Dir)
			continue
		}
		c.licences = append(c.licences, m)
		if l := m.Licence; l.NonCommercial && !c.options.AcceptLicence {
			faults = append(faults, fmt.Errorf("licence not accepted: model %s: %s (%s, %s) does not allow every use; read the licence, and add --accept-licence if you agree", m.Name, l.SPDX, l.Holder, l.URL))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("%w\nnothing was changed", err)
	}
	c.compareLibrary()
	return c.compareEnvironments(ctx)
}

func (c *unbundleCall) compareLibrary() {
	l, system := c.contents.Library, runtime.GOOS+"/"+runtime.GOARCH
	if l == nil {
		return
	}
	if found, err := ort.Find(""); err == nil {
		c.here = append(c.here, found.String())
		return
	}
	if c.contents.System != system {
		c.refused = append(c.refused, fmt.Errorf("ONNX Runtime %s is for %s, but this machine is %s: install ONNX Runtime for this machine, or make the bundle on a machine of this kind", l.Version, c.contents.System, system))
		return
	}
	for _, name := range l.Files {
		c.library[inLibrary(name)] = true
	}
}

func (c *unbundleCall) compareEnvironments(ctx context.Context) error {
	for _, e := range c.contents.Environments {
		if made, err := c.envs.FindPacked(e.Packed); err == nil {
			c.here = append(c.here, "environment "+made.Name+" in "+made.Dir)
			continue
		}
		if err := c.envs.Suits(ctx, e.Packed); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			c.refused = append(c.refused, keyed(e.Entries, err))
			continue
		}
		c.make = append(c.make, e)
		for i := range e.Wheels {
			c.wheels[e.inWheels(i)] = ""
		}
	}
	return nil
}

// room refuses a disk without room for what comes, before the first byte.
func (c *unbundleCall) room(scratch string) error {
	var files, wheels int64
	for _, f := range c.manifest.Files {
		if _, comes := c.given[f.Name]; comes || c.library[f.Name] {
			files += f.Size
		}
		if _, comes := c.wheels[f.Name]; comes {
			wheels += 3 * f.Size // the wheel, and what is in it
		}
	}
	for dir, need := range map[string]int64{c.store.Dir: files, scratch: wheels} {
		if free, err := models.FreeSpace(dir); err == nil && free < need {
			return fmt.Errorf("not enough disk space: the bundle needs %s and %s has %s free: free some, or name other folders in REWARDLOOP_MODELS and REWARDLOOP_ENVS\nnothing was changed",
				megabytes(need), dir, cmp.Or(megabytes(free), "nothing"))
		}
	}
	return nil
}

// take reads the bundle once, and puts each file that comes in its place.
func (c *unbundleCall) take(ctx context.Context, in *models.Intake, scratch string) error {
	if len(c.given)+len(c.library)+len(c.wheels) == 0 {
		return nil
	}
	c.sayLicences()
	return c.manifest.Each(ctx, c.folder, func(e bundle.Entry, content io.Reader) error {
		if g, comes := c.given[e.Name]; comes {
			return in.Put(ctx, g, content)
		}
		if c.library[e.Name] {
			return c.putLibrary(strings.TrimPrefix(e.Name, inLibrary("")), e, content)
		}
		if _, comes := c.wheels[e.Name]; comes {
			at := filepath.Join(scratch, filepath.FromSlash(e.Name))
			c.wheels[e.Name] = at
			if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
				return err
			}
			return write(at, content)
		}
		return nil
	})
}

// putLibrary gives a file of ONNX Runtime its place, whole or not at all.
func (c *unbundleCall) putLibrary(name string, e bundle.Entry, content io.Reader) error {
	dir := ort.Kept(c.getenv)
	if dir == "" {
		return errors.New("no folder for ONNX Runtime: set REWARDLOOP_MODELS")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // a library is for everybody, as the umask would have it
		return err
	}
	part := filepath.Join(dir, "."+name+".part")
	sum := sha256.New()
	err := write(part, io.TeeReader(content, sum))
	if err == nil && hex.EncodeToString(sum.Sum(nil)) != e.SHA256 {
		err = fmt.Errorf("%w: file %q", bundle.ErrDamaged, e.Name)
	}
	if err == nil {
		err = os.Chmod(part, 0o644) //nolint:gosec // as above
	}
	if err == nil {
		err = os.Rename(part, filepath.Join(dir, name))
	}
	if err != nil {
		_ = os.Remove(part)
		return err
	}
	fmt.Fprintf(c.stderr, "%s: %s, in %s\n", name, megabytes(e.Size), dir)
	return nil
}

// write makes a file of what it reads, on the disk for good.
func write(at string, content io.Reader) error {
	f, err := os.Create(at)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Sync(), f.Close())
}

// makeEnvironments makes each environment out of its wheels.
func (c *unbundleCall) makeEnvironments(ctx context.Context, scratch string) error {
	for i, e := range c.make {
		links := filepath.Join(scratch, fmt.Sprintf("links-%d", i))
		if err := os.Mkdir(links, 0o700); err != nil {
			return err
		}
		for j, name := range e.Wheels {
			if err := os.Link(c.wheels[e.inWheels(j)], filepath.Join(links, name)); err != nil {
				if err = os.Symlink(c.wheels[e.inWheels(j)], filepath.Join(links, name)); err != nil {
					return err
				}
			}
		}
		shown := newEnvProgress(c.stderr, isTerminal(c.stderr))
		made, err := c.envs.Unpack(ctx, e.Packed, links, pyenv.Options{Progress: shown.event})
		shown.end()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			c.refused = append(c.refused, keyed(e.Entries, err))
			continue
		}
		fmt.Fprintf(c.stdout, "environment %s: made, Python %s with %s, for %s\n", made.Name, made.Python, rewards.Count(len(made.Packages), "package"), strings.Join(e.Entries, ", "))
	}
	return nil
}

// sayLicences shows the licences of what comes, before it does.
func (c *unbundleCall) sayLicences() {
	for _, m := range c.licences {
		fmt.Fprintf(c.stdout, "model %s, %s\n", m.Name, megabytes(m.size()))
		printLicence(c.stdout, models.Model{Licence: m.Licence, Homepage: m.Homepage})
	}
	for _, text := range c.contents.Agreed {
		fmt.Fprintf(c.stdout, "agreed to in the configuration: %s\n", text)
	}
}

// say says what became of the bundle.
func (c *unbundleCall) say() {
	for _, text := range c.here {
		fmt.Fprintf(c.stdout, "here already, left as it is: %s\n", text)
	}
	if len(c.given) > 0 {
		fmt.Fprintf(c.stdout, "%s put into %s\n", rewards.Count(len(c.given), "model file"), c.store.Dir)
	}
	if len(c.library) > 0 {
		fmt.Fprintf(c.stdout, "ONNX Runtime %s put into %s\n", c.contents.Library.Version, ort.Kept(c.getenv))
	}
	for _, text := range slices.Clone(c.contents.Without) {
		fmt.Fprintf(c.stdout, "not in the bundle: %s\n", text)
	}
	if len(c.refused) == 0 {
		fmt.Fprintln(c.stdout, "everything of the bundle is here: rewardloop serve -c, with your configuration, starts")
	}
}
