package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/models"
)

func modelsListCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list [NAME...]",
		Short: "list known and installed models; with names, their files",
		Long: "Lists known and installed models, one per line; with names, their files, sizes,\n" +
			"sources and licences. models list does not read the content of files.",
		Example: "rewardloop models list\nrewardloop models list ppocr-v4-mobile",
	}
	c := newModelsCall(e, cmd)
	cmd.Flags().BoolVar(&c.asJSON, "json", false, "print the output as one JSON document")
	cmd.RunE = func(cmd *cobra.Command, names []string) error { return c.do(cmd.Context(), names, c.list) }
	return cmd
}

// listed is a model in list --json.
type listed struct {
	models.Model
	Catalogue bool         `json:"catalogue"` // false: pulled by its source, or exported
	Exported  bool         `json:"exported"`  // here, with sums
	Here      bool         `json:"here"`
	Paths     []listedFile `json:"paths"`
}

type listedFile struct {
	Path string `json:"path"`
	Here bool   `json:"here"` // with its size; verify reads the contents
}

// list prints the catalogue and what else is in the folder, or what is named of it.
func (c *modelsCall) list(context.Context) error {
	known, broken := c.known() // what is known is printed also where the manifest is damaged
	all, err := c.named(known)
	switch {
	case err != nil:
		return err
	case c.asJSON:
		return errors.Join(c.json(map[string]any{"folder": c.store.Dir, "models": all}), broken)
	case len(c.names) > 0:
		for _, m := range all {
			broken = errors.Join(broken, c.describe(m))
		}
		fmt.Fprintf(c.stdout, "folder: %s\n", c.store.Dir)
		return broken
	}
	t := newTable(c.env, "name", "is", "size", "licence", "what it is")
	for _, m := range all {
		t.row(m.Name, presence(m.Here), sizeOf(m.Model), m.Licence.SPDX, m.Summary)
	}
	t.print()
	fmt.Fprintf(c.stdout, "\nfolder: %s\n`rewardloop models list NAME` prints all details of a model\n", c.store.Dir)
	return broken
}

// named are the models of the names that were given, or all.
func (c *modelsCall) named(all []listed) ([]listed, error) {
	if len(c.names) == 0 {
		return all, nil
	}
	var out []listed
	for _, name := range c.names {
		i := slices.IndexFunc(all, func(l listed) bool { return l.Name == name })
		if i < 0 {
			names := make([]string, len(all))
			for j, l := range all {
				names[j] = l.Name
			}
			return nil, fmt.Errorf("%w %q%s: `rewardloop models list` has the names", models.ErrUnknown, name, config.DidYouMean(name, names))
		}
		out = append(out, all[i])
	}
	return out, nil
}

// describe prints a model and its files.
func (c *modelsCall) describe(m listed) error {
	holder := ""
	if m.Licence.Holder != "" {
		holder = " " + m.Licence.Holder
	}
	fmt.Fprintf(c.stdout, "%s  %s, %s, %s%s%s\n  %s\n", m.Name, presence(m.Here), sizeOf(m.Model), m.Licence.SPDX, holder, components(m.Licence), m.Summary)
	if m.Export != "" {
		fmt.Fprintf(c.stdout, "    export: %s\n", m.Export)
	}
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	for i, f := range m.Files {
		fmt.Fprintf(w, "    %s\t%s\t%s\t%s\t%s\n", f.Role, f.Name, fileSize(f), presence(m.Paths[i].Here), f.Source)
	}
	err := w.Flush()
	fmt.Fprintln(c.stdout)
	return err
}

// known returns the catalogue's models, what else was pulled, and what was exported.
func (c *modelsCall) known() ([]listed, error) {
	others, err := c.store.Others()
	exported, exportedErr := c.store.Exported()
	if err == nil {
		err = exportedErr
	}
	var all []listed
	for _, m := range models.Catalogue() {
		l := listed{Model: m, Catalogue: true}
		if i := slices.IndexFunc(exported, func(x models.Model) bool { return x.Name == m.Name }); i >= 0 {
			l.Files, l.Exported = exported[i].Files, true
			exported = slices.Delete(exported, i, i+1)
		}
		all = append(all, l)
	}
	for _, m := range others {
		all = append(all, listed{Model: m})
	}
	for _, m := range exported {
		all = append(all, listed{Model: m, Exported: true})
	}
	for i := range all {
		if err := c.presence(&all[i]); err != nil {
			return all[:i], err
		}
	}
	return all, err
}

// presence says which files of a model are here.
func (c *modelsCall) presence(l *listed) error {
	l.Here, l.Paths = true, []listedFile{}
	if l.Export != "" {
		l.Here = c.store.Have(models.Model{Name: l.Name, Licence: l.Licence, Export: l.Export})
	}
	for _, f := range l.Files {
		path, err := c.store.Path(l.Model, f.Name)
		if err != nil {
			return err
		}
		info, err := os.Stat(path)
		here := err == nil && info.Mode().IsRegular() && (f.Size == 0 || info.Size() == f.Size)
		l.Paths = append(l.Paths, listedFile{path, here})
		l.Here = l.Here && (here || f.Optional && errors.Is(err, fs.ErrNotExist))
	}
	return nil
}

func presence(here bool) string {
	if here {
		return "here"
	}
	return "absent"
}

// components warns of a licence that has to be agreed to.
func components(l models.Licence) string {
	if l.NonCommercial {
		return " (to be agreed to: pull --accept-licence)"
	}
	return ""
}

// sizeOf is a model's size, which may be known of some of its files only.
func sizeOf(m models.Model) string {
	if m.Export != "" && len(m.Files) == 0 {
		return "to be exported"
	}
	unknown := slices.ContainsFunc(m.Files, func(f models.File) bool { return f.Size == 0 && !f.Optional })
	switch size := m.Size(); {
	case unknown && size < 1e6: // of the files beside the weights
		return "size unknown"
	case unknown:
		return "more than " + megabytes(size)
	}
	return megabytes(m.Size())
}

// fileSize is what is known of a file's size before it is here.
func fileSize(f models.File) string {
	if f.Optional {
		return "optional"
	}
	return megabytes(f.Size)
}

func megabytes(n int64) string {
	switch {
	case n == 0:
		return "size unknown"
	case n >= 1_000_000_000:
		return fmt.Sprintf("%.2f GB", float64(n)/1e9)
	case n < 100_000:
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}
