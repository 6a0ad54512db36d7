package export

import (
	"embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/models"
)

// programs are the exporters, what they share, and what they are run with.
//
//go:embed aesthetic.py clip.py common.py siglip.py text_rm.py requirements.txt
var programs embed.FS

// Recipe is the input of an export: the arguments of a program.
type Recipe struct {
	// Family is the program's name without .py.
	Family string
	// Model is the checkpoint: a folder, or owner/name of a repository. Empty: Args contain a file.
	Model string
	// Revision is the revision of Model's repository. Empty: main.
	Revision string
	// Processor is the checkpoint with preprocessing and tokenizer. Empty: Model.
	Processor string
	// Licence is the licence of the weights. Empty: the licence that the repository states.
	Licence string
	// Args are further arguments of the program. A file of the hub is hf://owner/repository/file@revision.
	Args []string
}

// ErrRecipe means that a recipe is not valid.
var ErrRecipe = errors.New("bad export")

// Families returns the possible values of Recipe.Family.
func Families() []string { return []string{"aesthetic", "clip", "siglip", "text_rm"} }

// recipes are those of the catalogue's models.
func recipes() map[string]Recipe {
	return map[string]Recipe{
		"aesthetic-v2": {
			Family: "aesthetic", Model: "openai/clip-vit-large-patch14", Licence: "Apache-2.0",
			// The file sac+logos+ava1-l14-linearMSE.pth of the predictor's authors, as TRL keeps it.
			Args: []string{"--head", "hf://trl-lib/ddpo-aesthetic-predictor/aesthetic-model.pth@main"},
		},
		"hpsv2.1": {Family: "clip", Licence: "Apache-2.0", Args: []string{"--hpsv2", "hf://xswu/HPSv2/HPS_v2.1_compressed.pt@main"}},
		"pickscore-v1": {
			Family: "clip", Model: "yuvalkirstain/PickScore_v1", Processor: "laion/CLIP-ViT-H-14-laion2B-s32B-b79K", Licence: "MIT",
		},
	}
}

// Find returns the recipe of a model of the catalogue. The error wraps ErrRecipe for a model that is available
// in ONNX, and models.ErrUnknown for any other name.
func Find(name string) (Recipe, error) {
	if r, ok := recipes()[name]; ok {
		return r, nil
	}
	if m, err := models.Find(name); err == nil {
		return Recipe{}, fmt.Errorf("%w: %s is offered in ONNX: %s", ErrRecipe, name, m.Remedy())
	}
	return Recipe{}, fmt.Errorf("%w %q: the catalogue has %s to export; for a checkpoint of your own use --family, --model and --name",
		models.ErrUnknown, name, strings.Join(slices.Sorted(maps.Keys(recipes())), ", "))
}

// validate says what is wrong before anything is done.
func (r Recipe) validate() error {
	if !slices.Contains(Families(), r.Family) {
		return fmt.Errorf("%w: family %q, want one of %s", ErrRecipe, r.Family, strings.Join(Families(), ", "))
	}
	for _, a := range r.Args {
		if flag, _, _ := strings.Cut(a, "="); slices.Contains([]string{"--out", "--name", "--model", "--revision", "--source", "--licence", "--processor"}, flag) {
			return fmt.Errorf("%w: %s after -- is set by rewardloop: write the flag before --", ErrRecipe, flag)
		}
	}
	if r.Model == "" && len(r.Args) == 0 {
		return fmt.Errorf("%w: no checkpoint: use --model FOLDER or --model owner/name", ErrRecipe)
	}
	for _, at := range []string{r.Model, r.Processor} {
		if at != "" && !isFolder(at) && !models.IsRepository(at) {
			return fmt.Errorf("%w: %s is neither a folder nor owner/name of a repository", ErrRecipe, at)
		}
	}
	return nil
}

func isFolder(at string) bool {
	info, err := os.Stat(at)
	return err == nil && info.IsDir()
}

// arguments are the program's, behind its name.
func (r Recipe) arguments(name, source, out string) []string {
	args := []string{"--out", out, "--name", name, "--source", source, "--licence", r.Licence}
	for _, pair := range [][2]string{{"--model", r.Model}, {"--processor", r.Processor}, {"--revision", r.Revision}} {
		if pair[1] != "" {
			args = append(args, pair[0], pair[1])
		}
	}
	return append(args, r.Args...)
}
