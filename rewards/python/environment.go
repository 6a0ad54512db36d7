package python

import (
	"os"
	"slices"
	"strings"
)

// baseEnv are the variables that every function sees: what finds programs, homes and
// languages, and what configures Python, accelerators, thread pools and caches of models.
// One that ends in an asterisk stands for all that begin so.
//
//nolint:gochecknoglobals // a table
var baseEnv = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "TERM", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "XDG_*",
	"PYTHON*", "VIRTUAL_ENV", "CONDA_*", "LD_LIBRARY_PATH", "LD_PRELOAD", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
	"CUDA_*", "NVIDIA_*", "NCCL_*", "HIP_*", "ROCR_*", "OMP_*", "MKL_*", "OPENBLAS_*", "NUMEXPR_*", "TOKENIZERS_PARALLELISM",
	"HF_HOME", "HF_HUB_*", "HF_ENDPOINT", "HF_DATASETS_*", "TRANSFORMERS_*", "TORCH_*", "TORCHINDUCTOR_*", "TRITON_*",
}

// environment is what a function sees of the server's: with names, those and baseEnv;
// without (nil), everything but hidden. BLAS and OpenMP use one thread for each call
// unless the server's own environment says otherwise, because the concurrency is ours.
func environment(names, hidden []string) []string {
	var env []string
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		switch {
		case names == nil && !slices.Contains(hidden, name) && !ownSecret(name),
			names != nil && (slices.Contains(names, name) || isBase(name)):
			env = append(env, pair)
		}
	}
	for _, name := range threadVariables() {
		if _, set := os.LookupEnv(name); !set {
			env = append(env, name+"=1")
		}
	}
	return append(env, "PYTHONDONTWRITEBYTECODE=1")
}

// threadVariables are those that say how many threads BLAS and OpenMP have.
func threadVariables() []string {
	return []string{"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"}
}

func isBase(name string) bool {
	return slices.ContainsFunc(baseEnv, func(base string) bool {
		prefix, all := strings.CutSuffix(base, "*")
		return all && strings.HasPrefix(name, prefix) || name == base
	})
}

// ownSecret reports whether a variable holds a secret of the server's own, such as
// REWARDLOOP_TOKEN.
func ownSecret(name string) bool {
	rest, own := strings.CutPrefix(name, "REWARDLOOP_")
	return own && slices.ContainsFunc([]string{"TOKEN", "KEY", "SECRET", "PASSWORD"}, func(word string) bool { return strings.Contains(rest, word) })
}
