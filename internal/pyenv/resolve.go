package pyenv

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Plan describes an environment before any of its packages is downloaded.
type Plan struct {
	Name               string    `json:"name"`
	Dir                string    `json:"folder"`
	Python             string    `json:"python"`
	SystemSitePackages bool      `json:"system_site_packages"`
	Packages           []Package `json:"packages"`
	// Total is the sum of the known sizes in bytes; Unknown is the number of packages whose size is
	// unknown.
	Total   int64 `json:"total"`
	Unknown int   `json:"unknown"`
}

// report is what pip writes of a resolution (pip's documentation, installation report, version 1).
type report struct {
	Install []struct {
		Direct   bool `json:"is_direct"`
		Download struct {
			URL     string `json:"url"`
			Archive *struct {
				Hashes map[string]string `json:"hashes"`
			} `json:"archive_info"`
		} `json:"download_info"`
		Metadata struct {
			Name       string   `json:"name"`
			Version    string   `json:"version"`
			Licence    string   `json:"license"`
			Expression string   `json:"license_expression"`
			Classifier []string `json:"classifier"`
		} `json:"metadata"`
	} `json:"install"`
}

// packages are those of a report, by name.
func (r report) packages() ([]Package, error) {
	var all []Package
	for _, i := range r.Install {
		p := Package{Name: canonical(i.Metadata.Name), Version: i.Metadata.Version, address: i.Download.URL, direct: i.Direct}
		if i.Download.Archive != nil {
			p.SHA256 = i.Download.Archive.Hashes["sha256"]
		}
		if p.SHA256 == "" {
			return nil, fmt.Errorf("%w: %s %s comes from %s and has no hash; name an archive or a wheel instead",
				ErrResolve, p.Name, p.Version, withoutUser(p.address))
		}
		at, _, _ := strings.Cut(p.address, "#")
		p.Source = !strings.HasSuffix(at, ".whl")
		p.Licence = licence(i.Metadata.Expression, i.Metadata.Licence, i.Metadata.Classifier)
		all = append(all, p)
	}
	return sorted(all), nil
}

// canonical is a package's name as indexes compare it (PEP 503).
func canonical(name string) string {
	return strings.ToLower(regexp.MustCompile(`[-_.]+`).ReplaceAllString(name, "-"))
}

// licence is what the metadata says, in a few words; "": it says none, or its whole text.
func licence(expression, text string, classifiers []string) string {
	if expression != "" {
		return expression
	}
	if text = strings.TrimSpace(text); text != "" && len(text) <= 80 && !strings.Contains(text, "\n") && !strings.EqualFold(text, "UNKNOWN") {
		return text
	}
	var said []string
	for _, c := range classifiers {
		if rest, ok := strings.CutPrefix(c, "License :: "); ok && rest != "OSI Approved" {
			parts := strings.Split(rest, " :: ")
			said = append(said, parts[len(parts)-1])
		}
	}
	return strings.Join(said, ", ")
}

// resolver finds out which packages a Spec means.
type resolver struct {
	spec   Spec
	py     python
	tool   string // a Python with pip
	temp   string
	held   *os.File
	source bool
}

// absolute is a text of requirements whose relative paths start at the root, and what it says
// beside packages: options of the index.
func (r resolver) absolute() (text string, options []string) {
	dir := r.spec.Dir
	if dir == "" {
		dir = "."
	}
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	var b strings.Builder
	for line := range strings.Lines(r.spec.Requirements) {
		line = strings.TrimRight(line, "\n")
		if option, ref := fileOption(line); ref != "" && !filepath.IsAbs(ref) && !strings.Contains(ref, "://") {
			line = option + " " + filepath.Join(dir, ref)
		}
		b.WriteString(line + "\n")
		bare := strings.TrimSpace(line)
		if strings.HasPrefix(bare, "-") && !strings.HasPrefix(bare, "--hash") && !strings.HasPrefix(bare, "-c") {
			options = append(options, bare)
		}
	}
	return b.String(), options
}

// resolve asks pip. It returns the packages that have to be installed beside those that a Python
// that is seen already has.
func (r resolver) resolve(ctx context.Context) ([]Package, error) {
	if !r.spec.packages() {
		return nil, nil
	}
	target := filepath.Join(r.temp, "target")
	if err := makeVenv(ctx, job{temp: r.temp, held: r.held}, r.py, target, r.spec.SystemSitePackages); err != nil {
		return nil, err
	}
	text, _ := r.absolute()
	wanted, said := filepath.Join(r.temp, "requirements.txt"), filepath.Join(r.temp, "report.json")
	if err := os.WriteFile(wanted, []byte(text), 0o600); err != nil { // an address in it may have a password
		return nil, err
	}
	args := []string{"-m", "pip", "--python", interpreterOf(target), "install", "--dry-run", "--report", said, "-r", wanted}
	if !r.source {
		args = append(args, "--only-binary", ":all:")
	}
	from := "the requirements"
	if r.spec.File != "" {
		from += " " + r.spec.File
	}
	from += " for Python " + r.py.Version
	j := job{what: from, class: ErrResolve, dir: r.spec.Dir, temp: r.temp, held: r.held, file: wanted, call: cmp.Or(r.spec.File, "the requirements")}
	if _, err := j.run(ctx, r.tool, args...); err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(said)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: pip wrote no report: %w", ErrResolve, from, err)
	}
	var rep report
	if err := json.Unmarshal(raw, &rep); err != nil {
		return nil, fmt.Errorf("%w: %s: invalid report of pip: %w", ErrResolve, from, err)
	}
	all, err := rep.packages()
	if err != nil {
		return nil, err
	}
	return all, errors.Join(r.promised(all), r.built(all))
}

// promised holds packages to the hashes of a file that has some.
func (r resolver) promised(all []Package) error {
	hashes := map[string][]string{}
	joined := strings.ReplaceAll(r.spec.Requirements, "\\\n", " ")
	sum, name := regexp.MustCompile(`--hash[= ]sha256:([0-9a-f]{64})`), regexp.MustCompile(`^\s*([A-Za-z0-9][A-Za-z0-9._-]*)`)
	for line := range strings.Lines(joined) {
		if m := name.FindStringSubmatch(line); m != nil {
			for _, h := range sum.FindAllStringSubmatch(line, -1) {
				hashes[canonical(m[1])] = append(hashes[canonical(m[1])], h[1])
			}
		}
	}
	if len(hashes) == 0 {
		return nil
	}
	var errs []error
	for _, p := range all {
		if !slices.Contains(hashes[p.Name], p.SHA256) {
			errs = append(errs, fmt.Errorf("%w: %s %s is offered with sha256 %s, which is not one of the %d that %s lists: do not use the file; if the file was replaced on purpose, "+
				"lock the requirements again", ErrHash, p.Name, p.Version, p.SHA256, len(hashes[p.Name]), cmp.Or(r.spec.File, "the configuration")))
		}
	}
	return errors.Join(errs...)
}

// built refuses packages that are built here where that is not allowed: a build runs their code,
// and fetches what no lock names.
func (r resolver) built(all []Package) error {
	if r.source {
		return nil
	}
	var names []string
	for _, p := range all {
		if p.Source {
			names = append(names, p.Name+" "+p.Version)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s: no wheel, only source, whose build uses tools that no lock lists: use --allow-source to build it on this machine", ErrResolve, strings.Join(names, ", "))
}

// pins are the lines of a lock that name the packages.
func pins(all []Package) string {
	var b strings.Builder
	for _, p := range all {
		what := p.Name + "==" + p.Version
		if p.direct {
			at, _, _ := strings.Cut(p.address, "#")
			what = p.Name + " @ " + at
		}
		fmt.Fprintf(&b, "%s --hash=sha256:%s\n", what, p.SHA256)
	}
	return b.String()
}

// name is the environment's: a digest of what it is made of.
func (r resolver) name(all []Package) string {
	content := []string{r.py.Version, r.py.Platform, strconv.FormatBool(r.spec.SystemSitePackages)}
	if r.spec.SystemSitePackages {
		content = append(content, r.py.Base)
	}
	for _, p := range all {
		content = append(content, p.Name+"=="+p.Version, p.SHA256)
	}
	text, err := json.Marshal(content)
	if err != nil {
		panic("pyenv: texts that JSON cannot hold: " + err.Error()) // they are strings
	}
	return "py" + r.py.minor() + "-" + short(text, 8)
}

// plan completes what is said of packages by their sizes.
func (r resolver) plan(ctx context.Context, dir string, all []Package, client *http.Client) Plan {
	p := Plan{Name: filepath.Base(dir), Dir: dir, Python: r.py.Version, SystemSitePackages: r.spec.SystemSitePackages, Packages: all}
	sizes(ctx, client, all)
	for _, one := range all {
		p.Total += one.Size
		if one.Size == 0 {
			p.Unknown++
		}
	}
	return p
}

const (
	// sizesAtOnce is how many files' sizes are asked for at a time.
	sizesAtOnce = 8
	// sizeTime bounds one question for a size, sizesTime all: a size that is not known is said to be unknown.
	sizeTime, sizesTime = 10 * time.Second, time.Minute
)

// sizes asks for the sizes of files, by HEAD, and looks at local ones.
func sizes(ctx context.Context, client *http.Client, all []Package) {
	ctx, cancel := context.WithTimeout(ctx, sizesTime)
	defer cancel()
	turns := make(chan struct{}, sizesAtOnce)
	var asking sync.WaitGroup
	for i := range all {
		turns <- struct{}{}
		asking.Go(func() { // ends with the question, which is bounded
			defer func() { <-turns }()
			all[i].Size = size(ctx, client, all[i].address)
		})
	}
	asking.Wait()
}

// size is a file's, in bytes; 0: unknown.
func size(ctx context.Context, client *http.Client, address string) int64 {
	u, err := url.Parse(address)
	if err != nil {
		return 0
	}
	if u.Scheme == "file" {
		info, err := os.Stat(u.Path)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	ctx, cancel := context.WithTimeout(ctx, sizeTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, address, nil)
	if err != nil {
		return 0
	}
	res, err := client.Do(req)
	if err != nil {
		return 0
	}
	_ = res.Body.Close() // a HEAD has none
	if res.StatusCode != http.StatusOK {
		return 0
	}
	return max(res.ContentLength, 0)
}
