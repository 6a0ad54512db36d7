package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rewardloop/rewardloop/queue/acl"
)

const queueText = `
Creates the access files of the NATS server that gateways and workers on several
machines share: one key for each of the two roles, and the access list of the
server. A role can use only its own subjects: a worker can receive tickets and
cannot create tickets. docs/queue-security.md lists the subjects.

Without --jwt, queue acl writes gateway.nk and worker.nk, which are secret, and
acl.conf for the NATS server: the embedded server of serve (--nats-listen), or a
nats-server whose configuration includes the file. With --jwt, queue acl writes
gateway.creds, worker.creds and resolver.conf for a nats-server with JWT
authentication. With --tls, queue acl also writes a small certificate authority,
and a certificate for the names and addresses of the server.

Existing files are replaced only with --force.`

const queueExample = `
rewardloop queue acl --out access
rewardloop queue acl --out access-tls --tls gateway.lab,10.0.0.5 --mtls
rewardloop queue acl --out access-jwt --jwt`

// access is one call of queue acl.
type access struct {
	*env
	acl.Config
}

func queueCommand(e *env) *cobra.Command {
	child := &cobra.Command{
		Use: "acl --out FOLDER", Args: nothingElse,
		Short: "create a key for each role, and the access list of the server",
		Long:  queueText, Example: queueExample,
	}
	a := access{env: e}
	child.Flags().StringVar(&a.Dir, "out", "", "output `folder`; created if missing")
	child.Flags().BoolVar(&a.JWT, "jwt", false, "write operator, accounts and credentials instead of nkeys")
	hosts := child.Flags().StringSlice("tls", nil, "also write certificates for these `hosts`: comma-separated names and addresses of the server")
	child.Flags().BoolVar(&a.MutualTLS, "mtls", false, "with --tls: also write a certificate for each role, for servers that require client certificates")
	child.Flags().BoolVar(&a.Force, "force", false, "replace existing files; the old keys stop working when the server loads the new files")
	child.RunE = func(*cobra.Command, []string) error {
		for _, host := range *hosts {
			a.Hosts = append(a.Hosts, strings.TrimSpace(host))
		}
		return a.create()
	}
	return parent(&cobra.Command{
		Use: "queue", GroupID: groupPrepare, DisableFlagsInUseLine: true,
		Short: "create the NATS keys of gateways and workers",
		Long:  queueText, Example: queueExample,
	}, child)
}

// create writes the files and says what to do with them.
func (a *access) create() error {
	if a.Dir == "" {
		return errors.New("--out must name a folder for the key files")
	}
	if err := a.Validate(); err != nil {
		return wrong(ownWords(err))
	}
	files, err := acl.Create(a.Config)
	switch {
	case errors.Is(err, acl.ErrExists):
		return wrong(fmt.Errorf("%w; --force replaces them", ownWords(err)))
	case err != nil:
		return failed(ownWords(err))
	}
	if err := a.report(files); err != nil {
		return failed(err)
	}
	return nil
}

// ownWords is an error of package acl without the package's name, which the command has, too.
func ownWords(err error) error {
	var lines []string
	for line := range strings.Lines(err.Error()) {
		lines = append(lines, strings.TrimPrefix(line, "acl: "))
	}
	return errors.New(strings.Join(lines, ""))
}

// report says what was written, and what to run next.
func (a *access) report(files []acl.File) error {
	fmt.Fprintf(a.stdout, "written to %s:\n", a.Dir)
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, f := range files {
		note := "secret"
		if f.Mode&0o077 != 0 {
			note = ""
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\n", f.Name, note, f.For)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	a.next()
	return nil
}

// next prints the two commands that use the files.
func (a *access) next() {
	host, scheme := "HOST", "nats"
	if len(a.Hosts) > 0 {
		host, scheme = a.Hosts[0], "tls"
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
	}
	url := scheme + "://" + host + ":4222"
	serve := []string{"rewardloop serve -c cfg.yaml --nats-listen 0.0.0.0:4222", a.setting("acl_file", "acl.conf")}
	if a.JWT {
		serve = []string{"rewardloop serve -c cfg.yaml --nats " + url}
	}
	fmt.Fprintln(a.stdout, "\nthen, on the gateway's machine:")
	if a.JWT {
		fmt.Fprintf(a.stdout, "  # a nats-server whose configuration has jetstream { … } and: include %s\n", a.path("resolver.conf"))
	}
	printCommand(a.stdout, append(serve, a.settings(acl.Gateway)...))
	fmt.Fprintf(a.stdout, "on each worker's machine, which gets %s:\n", strings.Join(a.forWorkers(), ", "))
	printCommand(a.stdout, append([]string{"rewardloop worker -c cfg.yaml --join " + url}, a.settings(acl.Worker)...))
}

// settings are what a role's command is told of the files.
func (a *access) settings(role acl.Role) []string {
	all := []string{a.setting("nkey_file", acl.SeedFile(role))}
	if a.JWT {
		all = []string{a.setting("creds_file", acl.CredsFile(role))}
	}
	if len(a.Hosts) == 0 {
		return all
	}
	all = append(all, a.setting("tls_ca", "ca.pem"))
	name := ""
	switch {
	case role == acl.Gateway && !a.JWT: // its own server shows it
		name = "server"
	case a.MutualTLS:
		name = string(role)
	}
	if name != "" {
		all = append(all, a.setting("tls_cert", name+".pem"), a.setting("tls_key", name+"-key.pem"))
	}
	return all
}

// forWorkers are the files that a worker's machine gets, and no others.
func (a *access) forWorkers() []string {
	var names []string
	for _, s := range a.settings(acl.Worker) {
		_, path, _ := strings.Cut(s, "=")
		names = append(names, filepath.Base(strings.Trim(path, "'")))
	}
	return slices.Clip(names)
}

func (a *access) setting(key, file string) string {
	return "++queue." + key + "=" + a.path(file)
}

// path is a file as a shell takes it.
func (a *access) path(file string) string {
	path := filepath.Join(a.Dir, file)
	if strings.ContainsAny(path, " '\"$&;|<>()*?[]#~\\`\t\n!{}") {
		return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	return path
}

// printCommand prints a command that can be copied, a setting in each line.
func printCommand(w io.Writer, parts []string) {
	fmt.Fprintf(w, "  %s\n", strings.Join(parts, " \\\n    "))
}
