package models

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/internal/hfcache"
)

const (
	// maxListing bounds what is read of a repository's list of files, in bytes, and
	// maxListed how many files it may have.
	maxListing = 16 << 20
	maxListed  = 20_000
)

// Repository is the description of a repository by a Hugging Face endpoint.
type Repository struct {
	Name, Revision string
	Commit         string // the commit of the revision
	Licence        string // the licence in the model card; empty: none
	Files          []RepositoryFile
}

// RepositoryFile is a file of a Repository. Size is in bytes; 0: unknown.
type RepositoryFile struct {
	Path string
	Size int64
}

// IsRepository reports whether name has the form owner/name or owner/name@revision.
func IsRepository(name string) bool { return hubName.MatchString(name) }

// Repository queries the endpoint for a repository. name is owner/name or owner/name@revision; the
// default revision is main. The error contains the cause and the remedy.
func (s Store) Repository(ctx context.Context, name string) (Repository, error) {
	s.Config = s.WithDefaults()
	m := hubName.FindStringSubmatch(name)
	if m == nil {
		return Repository{}, fmt.Errorf("%w %q, want owner/name or owner/name@revision", ErrSource, name)
	}
	r := Repository{Name: m[1], Revision: m[2]}
	if r.Revision == "" {
		r.Revision = "main"
	}
	if s.Offline != "" {
		return r, fmt.Errorf("%w: %s forbids access to the hub for %s: unset the variable", errOffline, s.Offline, r.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, min(askFor, s.Stall))
	defer cancel()
	client := newClient(s.Config)
	defer client.CloseIdleConnections()
	address := fmt.Sprintf("%s/api/models/%s/revision/%s?blobs=true", strings.TrimRight(s.Endpoint, "/"), r.Name, url.PathEscape(r.Revision))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return r, fmt.Errorf("%w: %w", errFetch, err)
	}
	if s.Token != "" {
		req.Header.Set("Authorization", "Bearer "+s.Token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return r, fmt.Errorf("%w: %s: no answer from %s: %w: check the network, the proxy and HF_ENDPOINT", errFetch, r.Name, s.Endpoint, errors.Unwrap(err))
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return r, fmt.Errorf("%w: %s@%s: %s answers %s: correct the name or the revision; a repository that is private, or requires an agreement, needs a token in HF_TOKEN",
			errFetch, r.Name, r.Revision, s.Endpoint, resp.Status)
	default:
		return r, fmt.Errorf("%w: %s: %s answers %s: try again later", errFetch, r.Name, s.Endpoint, resp.Status)
	}
	return r, r.read(resp.Body)
}

// read takes the endpoint's answer. A file whose name is no plain path is left out.
func (r *Repository) read(body io.Reader) error {
	var said struct {
		SHA   string `json:"sha"`
		Files []struct {
			Path string `json:"rfilename"`
			Size int64  `json:"size"`
		} `json:"siblings"`
		Card struct {
			Licence any `json:"license"`
		} `json:"cardData"`
	}
	if err := json.NewDecoder(io.LimitReader(body, maxListing)).Decode(&said); err != nil {
		return fmt.Errorf("%w: %s: invalid list of files: %w", errFetch, r.Name, err)
	}
	if !hfcache.IsCommit(said.SHA) || len(said.Files) > maxListed {
		return fmt.Errorf("%w: %s: the list of files has the commit %q and %d files; want a commit, and at most %d files", errFetch, r.Name, said.SHA, len(said.Files), maxListed)
	}
	r.Commit = said.SHA
	if text, is := said.Card.Licence.(string); is && plainName.MatchString(text) {
		r.Licence = text
	}
	for _, f := range said.Files {
		if validName(f.Path) == nil {
			r.Files = append(r.Files, RepositoryFile{f.Path, max(f.Size, 0)})
		}
	}
	slices.SortFunc(r.Files, func(a, b RepositoryFile) int { return strings.Compare(a.Path, b.Path) })
	return nil
}

// Checkpoint returns the files of the repository that transformers reads: the weights in its top
// folder, as safetensors if available, and the files that describe them.
func (r Repository) Checkpoint() []RepositoryFile {
	top := func(pattern string) []RepositoryFile {
		return slices.DeleteFunc(slices.Clone(r.Files), func(f RepositoryFile) bool { is, err := path.Match(pattern, f.Path); return err != nil || !is })
	}
	weights := top("model*.safetensors")
	if len(weights) == 0 {
		weights = top("pytorch_model*.bin")
	}
	for _, pattern := range []string{"*.json", "*.txt", "*.model"} {
		weights = append(weights, top(pattern)...)
	}
	return weights
}

// otherPrecision are the ends of the names under which exporters put graphs beside the
// float32 ones.
var otherPrecision = regexp.MustCompile(`_(fp16|bf16|int8|uint8|quantized|bnb4|q4|q4f16|q8|O[1-4]|qint8[a-z0-9_]*|quint8[a-z0-9_]*)\.onnx(_data.*|\.data)?$`)

// describes is true for what scorers and judges read of a folder beside its graphs.
func describes(name string) bool {
	return slices.Contains([]string{
		"scorer.json", "judge.json", "selftest.json", "config.json", "preprocessor_config.json", "processor_config.json", "chat_template.jinja", "chat_template.json",
		"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json",
	}, name)
}

// FromRepository returns a Model with the files that a scorer needs of a repository with ONNX
// graphs: the graphs in float32 and the files that describe them. In a store the files are below
// owner/name. The error is ErrSource if there are no such graphs.
func FromRepository(r Repository) (Model, error) {
	m := Model{
		Name: r.Name, Summary: "the repository " + r.Name, Licence: Licence{SPDX: cmp.Or(r.Licence, UnknownLicence)}, Homepage: "the page of " + r.Name,
	}
	graphs := 0
	has := func(at, name string) bool {
		return slices.ContainsFunc(r.Files, func(f RepositoryFile) bool { return f.Path == path.Join(path.Dir(at), name) })
	}
	for _, f := range r.Files {
		onnx := strings.Contains(path.Ext(f.Path), ".onnx") || strings.HasSuffix(f.Path, ".onnx.data")
		if onnx && otherPrecision.MatchString(f.Path) || !onnx && !describes(f.Path) {
			continue
		}
		switch graph, _, _ := strings.Cut(path.Base(f.Path), ".onnx"); graph { // the same weights in another shape
		case "model":
			if has(f.Path, "vision_model.onnx") && has(f.Path, "text_model.onnx") {
				continue
			}
		case "decoder_model", "decoder_with_past_model":
			if has(f.Path, "decoder_model_merged.onnx") {
				continue
			}
		}
		if onnx {
			graphs++
		}
		m.Files = append(m.Files, File{Role: f.Path, Name: r.Name + "/" + f.Path, Size: f.Size, Source: "hf://" + r.Name + "/" + f.Path + "@" + r.Commit})
	}
	if graphs == 0 {
		return m, fmt.Errorf("%w: %s has no ONNX graphs in float32: `rewardloop models export --family clip --model %s --name NAME` exports them from a checkpoint of CLIP "+
			"(`rewardloop models export --help` has the other families); or name a file, hf://%s/FILE@%s", ErrSource, r.Name, r.Name, r.Name, r.Commit)
	}
	return m, m.Validate()
}
