package ort

import (
	"time"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool"
)

// EveryoneHas reports whether every process of a runner has a model.
func EveryoneHas(r pool.Runner, m infer.Model) bool { return r.(*runner).everyoneHas(m) }

// BindDecoder says what is wrong with a decoder of such ports.
func BindDecoder(inputs, outputs []infer.Port) error {
	_, err := bindDecoder(infer.Model{Name: "decoder"}, inputs, outputs)
	return err
}

// SetLenience sets how long Load waits for processes that are busy.
func SetLenience(r pool.Runner, d time.Duration) { r.(*runner).lenience = d }

// What provider.go is made of.
var (
	ExamineProvider   = examineProvider
	CUDAFolders       = cudaFolders
	SitePackages      = sitePackages
	ConfiguredFolders = configuredFolders
)

// FindAmong finds a library in the first folder that will do.
func FindAmong(cuda bool, folders ...string) (Library, error) {
	var all []place
	for _, dir := range folders {
		all = append(all, place{"a default", dir})
	}
	return find("", "", all, cuda)
}

// LastPlace is where a library is looked for last.
func LastPlace(sites []string) string {
	all := places(sites)
	return all[len(all)-1].path
}
